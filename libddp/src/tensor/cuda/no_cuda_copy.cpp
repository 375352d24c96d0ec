#include "tensor/backend/copy_backend.h"

namespace ddp::raw {

CopyBackend& cuda_copy() {
  static CopyBackend none;
  return none;
}

}  // namespace ddp::raw
