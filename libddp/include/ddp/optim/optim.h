#pragma once

/// All of the room optim.
#include "ddp/optim/adam.h"
#include "ddp/optim/lr_scheduler.h"
#include "ddp/optim/optimizer.h"
#include "ddp/optim/sgd.h"
