// JSON files that libraries leave beside models.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace onnxd {

// Null where there is no such file, or no JSON in it. What is nested deeper than 16 levels is left
// out: what copies or writes it calls itself.
nlohmann::json ReadJsonFile(const std::filesystem::path& path);

// A text of the object; empty where there is none.
std::string TextOf(const nlohmann::json& object, const char* key);

}  // namespace onnxd
