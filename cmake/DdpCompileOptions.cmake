# Flags of this project's own targets; nothing here reaches users of the installed library.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# ccache: paths below the source folder are made relative, so that another clone hits.
find_program(DDP_CCACHE ccache)
if(DDP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${DDP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

add_library(ddp_flags INTERFACE)
target_compile_options(ddp_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>
  $<$<AND:$<BOOL:${DDP_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
if(DDP_SANITIZE)
  if(DDP_SANITIZE MATCHES "thread" AND DDP_SANITIZE MATCHES "address")
    message(FATAL_ERROR "DDP_SANITIZE=${DDP_SANITIZE}: thread and address exclude each other")
  endif()
  add_compile_options(-fsanitize=${DDP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${DDP_SANITIZE})
endif()
