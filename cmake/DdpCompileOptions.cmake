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
mark_as_advanced(DDP_CCACHE)
if(DDP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${DDP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

add_library(ddp_flags INTERFACE)
target_compile_options(ddp_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>
  $<$<AND:$<BOOL:${DDP_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>
  # No -Wpedantic for nvcc: the host code that it generates is not pedantic C++.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  "$<$<AND:$<BOOL:${DDP_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:SHELL:-Werror all-warnings -Xcompiler=-Werror>")

if(DDP_SANITIZE)
  if(DDP_SANITIZE MATCHES "thread" AND DDP_SANITIZE MATCHES "address")
    message(FATAL_ERROR "DDP_SANITIZE=${DDP_SANITIZE}: thread and address exclude each other")
  endif()
  add_compile_options(-fsanitize=${DDP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DDP_SANITIZE})
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

# This machine's vector instructions, used in src/tensor/cpu alone. Elsewhere they are
# a trap: an inline function compiled with and without them has two bodies, and the linker keeps either.
# The key stands for what -march=native means here; without it the compiler cache, which sees only the text
# of the flags, would hand another processor's code to this one.
set(DDP_NATIVE_FLAGS "")
set(DDP_CPU_FLAGS_TEXT "baseline (DDP_NATIVE=OFF)")
if(DDP_NATIVE)
  file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/ddp_native.cpp "")
  execute_process(
    COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E ${CMAKE_BINARY_DIR}/CMakeFiles/ddp_native.cpp
    RESULT_VARIABLE failed OUTPUT_VARIABLE macros ERROR_QUIET)
  if(failed)
    set(DDP_CPU_FLAGS_TEXT "baseline (${CMAKE_CXX_COMPILER_ID} refuses -march=native)")
  else()
    string(SHA256 key "${macros}")
    string(SUBSTRING ${key} 0 12 key)
    set(DDP_NATIVE_FLAGS -march=native -DDDP_NATIVE_KEY=${key})
    set(DDP_CPU_FLAGS_TEXT "-march=native:")
    foreach(feature SSE4_2 AVX AVX2 FMA AVX512F AVX512BF16 AVX512FP16 ARM_NEON ARM_FEATURE_SVE)
      if(macros MATCHES "__${feature}__| __${feature} ")
        string(APPEND DDP_CPU_FLAGS_TEXT " ${feature}")
      endif()
    endforeach()
  endif()
endif()
