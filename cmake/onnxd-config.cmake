include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(spdlog)
include("${CMAKE_CURRENT_LIST_DIR}/onnxd.cmake")
