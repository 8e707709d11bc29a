# What `cmake --install` puts in place: the shared library, the public headers, the muster command with its manual
# pages and completions, and what pkg-config and find_package need to find them.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/muster)

install(TARGETS muster EXPORT muster
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS muster_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${MUSTER_PAGES}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${MUSTER_PAGES}/completions/muster.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME muster)
install(FILES ${MUSTER_PAGES}/completions/_muster DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

install(EXPORT muster NAMESPACE muster:: FILE muster-targets.cmake DESTINATION ${package_folder})
configure_package_config_file(cmake/muster-config.cmake.in muster-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(muster-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/muster-config.cmake ${PROJECT_BINARY_DIR}/muster-config-version.cmake
  DESTINATION ${package_folder})

# The prefix as seen from the folder of muster.pc, so that the installed tree can be moved.
file(RELATIVE_PATH pkgconfig_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
configure_file(cmake/muster.pc.in muster.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/muster.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The description of the interface, from which bindings of other languages can be made; python3 reads the headers.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  set(MUSTER_INTERFACE ${PROJECT_BINARY_DIR}/muster.json)
  file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/include/muster/*.h)
  add_custom_command(OUTPUT ${MUSTER_INTERFACE}
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/describe_interface ${MUSTER_INTERFACE}
    DEPENDS ${public_headers} ${PROJECT_SOURCE_DIR}/scripts/describe_interface ${PROJECT_SOURCE_DIR}/scripts/public_headers.py)
  add_custom_target(muster_interface ALL DEPENDS ${MUSTER_INTERFACE})
  install(FILES ${MUSTER_INTERFACE} DESTINATION ${CMAKE_INSTALL_DATADIR}/muster)
endif()
