// Linked into a test program: its ranks are on one GPU.
#include <cstdlib>

namespace {

[[maybe_unused]] const int kSet = setenv("DDP_TEST_BACKEND", "cuda", 0);

}  // namespace
