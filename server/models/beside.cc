#include "server/models/beside.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <system_error>
#include <thread>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr int kLowNice = 10;

std::atomic<int> g_left_behind{0};

void LowerPriority() {
  // Of this thread alone (setpriority(2), Linux).
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowNice);
}

// What it owns goes before its owner goes on.
void RunAndDrop(std::function<void()>& work) {
  const Status status = CatchExceptions([&] {
    work();
    return Status::Ok();
  });
  if (!status.ok()) LogWarning(status.ToString());
  work = nullptr;
}

// None where no more may be started.
std::thread StartThread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    LogWarning(StrCat("no thread beside: ", error.what()));
    return {};
  }
}

}  // namespace

bool RunBeside(std::function<void()> work, WorkPriority priority,
               std::chrono::steady_clock::duration most, const std::function<void()>& meanwhile) {
  const auto end = std::chrono::steady_clock::now() + most;
  // 1 once the thread has ended, 2 once its owner has gone on; whoever comes second counts.
  auto first = std::make_shared<std::atomic<int>>(0);
  auto ended = std::make_shared<std::promise<void>>();
  auto future = ended->get_future();
  const auto shared = std::make_shared<std::function<void()>>(std::move(work));
  std::thread thread = StartThread([shared, priority, first, ended] {
    if (priority == WorkPriority::kLow) LowerPriority();
    RunAndDrop(*shared);
    if (first->exchange(1) == 2) --g_left_behind;
    ended->set_value();
  });
  if (!thread.joinable()) {
    RunAndDrop(*shared);
    return true;
  }
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
