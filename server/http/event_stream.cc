#include "server/http/event_stream.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

void EventStream::Send(std::string_view data) {
  if (!std::exchange(begun_, true)) {
    HttpResponse response;
    response.content_type = "text/event-stream; charset=utf-8";
    response.headers.emplace_back("Cache-Control", "no-cache");
    response.stream = stream_;
    respond_(std::move(response));
  }
  stream_->Send(StrCat("data: ", data, "\n\n"));
}

void EventStream::Fail(HttpResponse answer) {
  if (!begun_) return respond_(std::move(answer));
  Send(answer.body);
  End();
}

}  // namespace onnxd
