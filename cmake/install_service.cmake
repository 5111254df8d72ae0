# The configuration and the unit, at their paths: /etc for a program below /usr, as the file hierarchy
# has it, else below the same prefix.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(configuration /etc/onnxd)
else()
  set(configuration ${CMAKE_INSTALL_PREFIX}/etc/onnxd)
endif()
file(INSTALL ${ONNXD_SOURCE_DIR}/deploy/systemd/onnxd.yaml DESTINATION ${configuration})

file(READ ${ONNXD_SOURCE_DIR}/deploy/systemd/onnxd.service unit)
string(REPLACE /usr/bin/onnxd ${CMAKE_INSTALL_PREFIX}/bin/onnxd unit "${unit}")
string(REPLACE /etc/onnxd/onnxd.yaml ${configuration}/onnxd.yaml unit "${unit}")
file(WRITE ${ONNXD_BINARY_DIR}/onnxd.service "${unit}")
file(INSTALL ${ONNXD_BINARY_DIR}/onnxd.service DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
