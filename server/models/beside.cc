#include "server/models/beside.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"

namespace onnxd {
namespace {

constexpr int kLowNice = 10;

std::atomic<int> g_left_behind{0};

void LowerPriority() {
  // Of this thread alone (setpriority(2), Linux).
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowNice);
}

}  // namespace

bool RunBeside(std::function<void()> work, WorkPriority priority,
               std::chrono::steady_clock::duration most, const std::function<void()>& meanwhile) {
  const auto end = std::chrono::steady_clock::now() + most;
  // 1 once the thread has ended, 2 once its owner has gone on; whoever comes second counts.
  auto first = std::make_shared<std::atomic<int>>(0);
  auto ended = std::make_shared<std::promise<void>>();
  auto future = ended->get_future();
  std::thread thread([work = std::move(work), priority, first, ended]() mutable {
    if (priority == WorkPriority::kLow) LowerPriority();
    const Status status = CatchExceptions([&] {
      work();
      return Status::Ok();
    });
    if (!status.ok()) LogWarning(status.ToString());
    work = nullptr;  // what it owns goes before its owner goes on
    if (first->exchange(1) == 2) --g_left_behind;
    ended->set_value();
  });
  while (future.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    meanwhile();
    if (std::chrono::steady_clock::now() < end) continue;
    ++g_left_behind;
    if (first->exchange(2) == 1) --g_left_behind;  // it has ended just now
    thread.detach();
    return false;
  }
  thread.join();
  return true;
}

bool WorkIsLeftBehind() { return g_left_behind > 0; }

}  // namespace onnxd
