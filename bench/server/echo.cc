// echo: answers each request and call with its own body, through the server's listeners and
// sessions and nothing behind them: what the transport alone takes.
//
//   echo [IO_THREADS]
//
// Prints "http PORT grpc PORT" and serves on 127.0.0.1 until it is killed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "server/grpc/grpc_server.h"
#include "server/http/http_server.h"
#include "server/net/entrance.h"
#include "server/net/io_threads.h"
#include "server/net/listener.h"

namespace onnxd {
namespace {

std::shared_ptr<Listener> Listen(IoThreads& threads, ServerMetrics& metrics,
                                 const Entrance& entrance) {
  auto listener = Listener::Bind(threads, "127.0.0.1", 0, metrics,
                                 [entrance](Connection::Socket socket, IoThreads::Seat seat) {
                                   entrance.Take(std::move(socket), std::move(seat));
                                 });
  if (listener.ok()) return *std::move(listener);
  std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
  std::exit(1);
}

void Echo(int io_threads) {
  const auto admit = [](int64_t) { return true; };
  const auto release = [](int64_t) {};
  ServerOptions options;
  ServerMetrics metrics;
  Tracer tracer({}, nullptr);
  IoThreads threads(io_threads);
  const TrustedProxies proxies = TrustedProxies::Parse("").value();
  HttpServer http(
      options, threads, proxies, {admit, release}, metrics,
      [](HttpRequest request, const HttpRespond& respond) {
        HttpResponse response;
        response.body = request.body.bytes;
        respond(std::move(response));
      },
      [](const HttpRequest&) { return std::nullopt; });
  GrpcServer grpc(options.limits, proxies, tracer, {admit, release}, metrics,
                  {.unary = [](GrpcCall&& call,
                               const GrpcRespond& respond) { respond(std::move(call.message)); },
                   .check = [](const GrpcCall&) { return Status::Ok(); },
                   .is_streaming = [](std::string_view) { return false; },
                   .open_stream = nullptr,
                   .load_report = [](std::string_view) { return std::nullopt; }});
  const Entrance to_http([&](auto connection) { http.Serve(std::move(connection)); }, nullptr,
                         nullptr, metrics);
  const Entrance to_grpc(
      nullptr, [&](auto connection) { grpc.Serve(std::move(connection)); }, nullptr, metrics);
  const auto http_listener = Listen(threads, metrics, to_http);
  const auto grpc_listener = Listen(threads, metrics, to_grpc);
  http_listener->Start();
  grpc_listener->Start();
  threads.Start();
  std::printf("http %d grpc %d\n", http_listener->port(), grpc_listener->port());
  std::fflush(stdout);
  while (true) pause();
}

}  // namespace
}  // namespace onnxd

int main(int argc, char** argv) { onnxd::Echo(argc > 1 ? std::atoi(argv[1]) : 2); }
