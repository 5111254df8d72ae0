#include "server/models/beside.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"

namespace onnxd {
namespace {

constexpr int kLowNice = 10;

void LowerPriority() {
  // Of this thread alone (setpriority(2), Linux).
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowNice);
}

}  // namespace

bool RunBeside(std::function<void()> work, WorkPriority priority,
               std::chrono::steady_clock::duration most, const std::function<void()>& meanwhile) {
  const auto end = std::chrono::steady_clock::now() + most;
  auto ended = std::make_shared<std::promise<void>>();
  auto future = ended->get_future();
  std::thread thread([work = std::move(work), priority, ended]() mutable {
    if (priority == WorkPriority::kLow) LowerPriority();
    const Status status = CatchExceptions([&] {
      work();
      return Status::Ok();
    });
    if (!status.ok()) LogWarning(status.ToString());
    work = nullptr;  // what it owns goes before its owner goes on
    ended->set_value();
  });
  while (future.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    meanwhile();
    if (std::chrono::steady_clock::now() < end) continue;
    thread.detach();
    return false;
  }
  thread.join();
  return true;
}

}  // namespace onnxd
