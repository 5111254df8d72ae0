// ProgramCache: compiled kernels, and which of several was fastest, kept for later processes.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/private_folder.h"

namespace onnxd {

// Every method may be called from any thread.
class ProgramCache {
 public:
  struct Statistics {
    int64_t found = 0, compiled = 0;
  };

  explicit ProgramCache(std::shared_ptr<PrivateFolder> folder) : folder_(std::move(folder)) {}

  // `compiler`: all that the machine code depends on besides the text, such as device, driver and
  // version. Nothing when there is none, or when it is damaged: then it is removed.
  std::optional<std::string> Find(std::string_view compiler, std::string_view text);
  // A failure is a line of the log: the next process compiles again.
  void Store(std::string_view compiler, std::string_view text, std::string_view binary);

  // The answer to a question that was settled by timing. `device`: all that times depend on besides
  // the question.
  std::optional<std::string> FindFastest(std::string_view device, std::string_view question);
  void StoreFastest(std::string_view device, std::string_view question, std::string_view answer);

  Statistics statistics() const { return {found_, compiled_}; }

 private:
  std::string NameOf(std::string_view maker, std::string_view text, std::string_view kind) const;
  std::optional<std::string> Read(const std::string& name);
  void Write(const std::string& name, std::string_view bytes);

  const std::shared_ptr<PrivateFolder> folder_;
  std::atomic<int64_t> found_{0}, compiled_{0};
};

}  // namespace onnxd
