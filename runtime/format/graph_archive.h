// Prepared graphs as a file of our own: nodes, types and attributes as they are in memory,
// constants and their packed forms where a mapping of the file can be used as it is. Only this
// build reads what it wrote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

struct GraphArchive {
  std::vector<Graph> graphs;
  std::string facts;  // what the writer wanted beside them
};

// Creates `path`. Of an initializer, the plain elements are written if it still has them, and all
// its forms. kFailedPrecondition when the file cannot be written, kUnimplemented for what an
// archive cannot hold.
Status WriteGraphArchive(const std::string& path, const std::vector<const Graph*>& graphs,
                         std::string_view facts);

// Maps the file; the constants keep it mapped. kDataLoss when it is damaged.
Result<GraphArchive> ReadGraphArchive(const std::string& path);

}  // namespace onnxd
