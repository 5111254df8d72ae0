#include "server/net/io_threads.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/base/thread_slice.h"

namespace onnxd {
namespace {

// I/O threads come to work at once where others compute.
constexpr std::chrono::microseconds kSlice(100);
constexpr auto kLostWorkPause = std::chrono::milliseconds(20);

}  // namespace

IoThreads::IoThreads(int threads) {
  for (int i = 0; i < threads; ++i) loops_.push_back(std::make_unique<Loop>());
}

IoThreads::~IoThreads() { Stop(); }

IoThreads::Place IoThreads::Take() {
  const auto& loop =
      *std::min_element(loops_.begin(), loops_.end(),
                        [](const auto& a, const auto& b) { return *a->seats < *b->seats; });
  ++*loop->seats;
  return {loop->context, Seat(nullptr, [seats = loop->seats](void*) { --*seats; })};
}

void IoThreads::Start() {
  for (const auto& loop : loops_) {
    loop->thread = std::thread([this, &loop = *loop] {
      RequestSlice(kSlice);
      Work(loop);
    });
    long_threads_.emplace_back([this] { long_work_.run(); });
  }
}

void IoThreads::Work(Loop& loop) {
  while (!loop.context.stopped()) {
    // What a connection's work throws ends that connection: nothing holds it any more.
    Status status = CatchExceptions([&] {
      loop.context.run();
      return Status::Ok();
    });
    while (!status.ok() && !loop.context.stopped()) {
      LogWarning(StrCat("a connection was given up: ", status.ToString()));
      status = CatchExceptions([this] {
        for (const auto& revive : revive_) revive();
        return Status::Ok();
      });
      std::this_thread::sleep_for(kLostWorkPause);
    }
  }
}

void IoThreads::PostLong(std::function<void()> work) {
  boost::asio::post(long_work_, [work = std::move(work)] {
    const Status done = CatchExceptions([&] {
      work();
      return Status::Ok();
    });
    if (!done.ok()) LogWarning(StrCat("a request was given up: ", done.ToString()));
  });
}

void IoThreads::PostToAll(const std::function<void()>& work) {
  for (const auto& loop : loops_) boost::asio::post(loop->context, work);
}

void IoThreads::Stop() {
  long_work_.stop();
  for (std::thread& thread : long_threads_) thread.join();
  long_threads_.clear();
  for (const auto& loop : loops_) loop->context.stop();
  for (const auto& loop : loops_) {
    if (loop->thread.joinable()) loop->thread.join();
  }
}

}  // namespace onnxd
