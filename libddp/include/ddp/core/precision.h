#pragma once

/// How matrix products and convolutions on GPUs trade exactness for speed. Both switches hold for the whole process,
/// may be changed at any time from any thread, and apply to operations queued afterwards.
namespace ddp {

/// Lets matmul, linear and conv2d of float32 tensors round their inputs to TF32 (10 bits of mantissa) and so use
/// tensor cores; sums stay float32. Off unless the environment has DDP_ALLOW_TF32=1. Other dtypes and the CPU are
/// not touched.
void set_allow_tf32(bool allow);
bool allow_tf32();

/// At the first use of a shape, runs the few most promising algorithms of cuBLASLt or cuDNN on it and keeps the
/// fastest (what PyTorch calls cudnn.benchmark). That first use blocks the host, and two processes may choose
/// differently and so differ in the last bits. Off unless the environment has DDP_AUTOTUNE=1: then the libraries'
/// own heuristics choose. Nothing is measured while a stream is captured into a graph.
void set_autotune(bool measure);
bool autotune();

}  // namespace ddp
