#pragma once

/// All of the room nn.
#include "ddp/nn/activation.h"
#include "ddp/nn/conv.h"
#include "ddp/nn/dropout.h"
#include "ddp/nn/embedding.h"
#include "ddp/nn/init.h"
#include "ddp/nn/linear.h"
#include "ddp/nn/loss.h"
#include "ddp/nn/module.h"
#include "ddp/nn/norm.h"
#include "ddp/nn/pooling.h"
