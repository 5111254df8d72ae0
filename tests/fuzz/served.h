// A daemon in the fuzzer's own process, and what each input may cost it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace onnxd {

class Daemon;

// Starts the daemon, with the models of this repository, at the first call, and stops it when
// the process ends. Each request
// ends the process where it costs more than its size accounts for: processor time and bytes that
// are allocated meanwhile, which AddressSanitizer counts; and every thousandth where memory has
// grown since the first thousand, or an honest request is not answered.
class Served {
 public:
  static Served& Get();
  ~Served();

  // What the REST socket answers to these bytes until it closes, after which the client sends no
  // more. `half_close`: the client says so at once, which is what ends a connection that is not
  // asked to close.
  std::string AskRest(std::string_view bytes, bool half_close);
  // The same of the gRPC socket.
  std::string AskGrpc(std::string_view bytes, bool half_close);

 private:
  Served();

  std::string Charged(const std::string& socket, std::string_view bytes, bool half_close);
  std::string Exchange(const std::string& socket, std::string_view bytes, bool half_close);
  void CheckHealth();

  std::string folder_;
  std::unique_ptr<Daemon> daemon_;
  int64_t exchanges_ = 0;
  size_t settled_ = 0;  // bytes in use after the first thousand
};

// Ends the process, as a finding, with that text.
[[noreturn]] void Finding(const std::string& text);

}  // namespace onnxd
