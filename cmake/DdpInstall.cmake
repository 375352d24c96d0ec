# Installation: library, public headers, the ddp command, find_package(ddp) and pkg-config files.
# Packages for other machines are configured with -DDDP_NATIVE=OFF.
if(NOT DDP_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddp)

install(TARGETS ddp EXPORT ddpTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY libddp/include/ddp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET ddp_cli)
  install(TARGETS ddp_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT ddpTargets NAMESPACE ddp:: DESTINATION ${config_dir})
configure_package_config_file(cmake/ddpConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/ddpConfig.cmake
  INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/ddpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/ddpConfig.cmake ${CMAKE_BINARY_DIR}/cmake/ddpConfigVersion.cmake
              cmake/FindNCCL.cmake cmake/FindCUDNN.cmake
  DESTINATION ${config_dir})

# pkg-config. A static library cannot name what it needs, so the file does.
set(DDP_PC_LIBS "")
foreach(dir IN LISTS DDP_DEPS_LIBRARY_DIRS)
  string(APPEND DDP_PC_LIBS " -Wl,-rpath-link,${dir} -Wl,--disable-new-dtags,-rpath,${dir}")
endforeach()
if(NOT BUILD_SHARED_LIBS)
  if(DDP_HAVE_GLOO)
    get_target_property(location gloo LOCATION)
    cmake_path(GET location PARENT_PATH dir)
    string(APPEND DDP_PC_LIBS " -L${dir} -lgloo")
  endif()
  if(DDP_HAVE_CUDA)
    string(APPEND DDP_PC_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -Wl,-rpath,${CUDAToolkit_LIBRARY_DIR} -lcublasLt -lcudart")
  endif()
  if(DDP_HAVE_CUDNN)
    cmake_path(GET CUDNN_LIBRARY PARENT_PATH dir)
    string(APPEND DDP_PC_LIBS " -L${dir} -Wl,-rpath,${dir} -lcudnn")
  endif()
  if(DDP_HAVE_NCCL)
    cmake_path(GET NCCL_LIBRARY PARENT_PATH dir)
    string(APPEND DDP_PC_LIBS " -L${dir} -Wl,-rpath,${dir} -lnccl")
  endif()
  string(APPEND DDP_PC_LIBS " -lz -pthread")
endif()
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE DDP_PC_LIBDIR)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
  OUTPUT_VARIABLE DDP_PC_PREFIX)
configure_file(cmake/ddp.pc.in ${CMAKE_BINARY_DIR}/cmake/ddp.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cmake/ddp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
