# install.cmake: what `cmake --install` and `cpack -G DEB` put where. All of it may be moved afterwards as a whole:
# nothing has absolute paths inside.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Where an installed program finds the emulator's library, which emulated models are linked with.
file(RELATIVE_PATH FROM_BIN ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/braid)
set_source_files_properties(codegen/build/gpu.c PROPERTIES COMPILE_DEFINITIONS "BRAID_FROM_BIN=\"/${FROM_BIN}\"")
if(BRAID_PYTHON)
    return() # the wheel has places of its own (shim/CMakeLists.txt)
endif()

# The public library. Its interface (include/braid.h) only grows until SOVERSION changes.
set_target_properties(braid_shared PROPERTIES EXPORT_NAME braid VERSION ${PROJECT_VERSION} SOVERSION 0)
target_include_directories(braid_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS braid RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS braid_shared EXPORT braidTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/braid.h include/braid_model.h include/braid_dlpack.h include/braid_trees.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

if(BRAID_EMULATE)
    install(FILES ${EMULATE_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR}/braid)
endif()

# For find_package(braid CONFIG) and pkg-config.
set(CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
file(RELATIVE_PATH PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_package_config_file(cmake/braidConfig.cmake.in ${GEN}/braidConfig.cmake INSTALL_DESTINATION ${CONFIG_DIR})
write_basic_package_version_file(${GEN}/braidConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(cmake/braid.pc.in ${GEN}/braid.pc @ONLY)
install(EXPORT braidTargets NAMESPACE braid:: DESTINATION ${CONFIG_DIR})
install(FILES ${GEN}/braidConfig.cmake ${GEN}/braidConfigVersion.cmake DESTINATION ${CONFIG_DIR})
install(FILES ${GEN}/braid.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN __pycache__ EXCLUDE)

# The Debian package: braid runs without a C compiler, but compiles for the CPU with one.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR Braid)
set(CPACK_PACKAGE_CONTACT "The Braid authors <braid@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "gcc | c-compiler, libc6-dev | libc-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, nvidia-cuda-toolkit, hipcc, pkg-config, cmake")
include(CPack)
