# Third-party packages. Each is used in the one room that may include it.
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)

set(DDP_HAVE_GLOO OFF)
if(NOT DDP_WITH_GLOO STREQUAL OFF)
  find_package(Gloo CONFIG QUIET)
  if(Gloo_FOUND)
    set(DDP_HAVE_GLOO ON)
  elseif(DDP_WITH_GLOO STREQUAL ON)
    message(FATAL_ERROR "DDP_WITH_GLOO=ON but Gloo was not found (Debian/Ubuntu package libgloo-dev)")
  endif()
endif()

set(DDP_HAVE_CUDA OFF)
set(DDP_HAVE_NCCL OFF)
set(DDP_HAVE_CUDNN OFF)
