// Runs what scripts/fuzz starts from and what it once found, without libFuzzer: replay FOLDER, in
// which a folder has the name of its target.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/fuzz_targets.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: replay FOLDER\n");
    return 2;
  }
  int count = 0;
  for (const auto& folder : std::filesystem::directory_iterator(argv[1])) {
    const onnxd::FuzzTarget target = onnxd::FuzzTargetNamed(folder.path().filename().string());
    if (target == nullptr) {
      std::fprintf(stderr, "%s is no target\n", folder.path().c_str());
      return 2;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::printf("%s\n", entry.path().c_str());
      std::fflush(stdout);
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      target(bytes);
      ++count;
    }
  }
  std::printf("%d inputs\n", count);
  return count > 0 ? 0 : 1;
}
