# ddp_add_bench(<name> SOURCES ... [LIBS ...]): one executable with Google Benchmark's main.
find_package(benchmark REQUIRED)
function(ddp_add_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ddp::ddp ddp_flags benchmark::benchmark benchmark::benchmark_main ${arg_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/libddp/src ${PROJECT_SOURCE_DIR}/libddp)
endfunction()
