// EventStream: an answer of server-sent events, written while they happen.
// Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "server/http/http_message.h"

namespace onnxd {

// One call at a time. The answer begins with its first event, so that what fails before has the
// HTTP status of its error. Ends when it is gone.
class EventStream {
 public:
  explicit EventStream(HttpRespond respond) : respond_(std::move(respond)) {}
  ~EventStream() { stream_->End(); }
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  bool begun() const { return begun_; }
  // `data` has no line ends.
  void Send(std::string_view data);
  // In the place of all events, or once there were some as the last of them: the answer's body.
  void Fail(HttpResponse answer);
  void End() { stream_->End(); }

 private:
  const HttpRespond respond_;
  const std::shared_ptr<HttpStream> stream_ = std::make_shared<HttpStream>();
  bool begun_ = false;
};

}  // namespace onnxd
