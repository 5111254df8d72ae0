// Where the messages of one call live: one block on the stack for small ones.
#pragma once

#include <google/protobuf/arena.h>

#include <cstddef>

namespace onnxd {

// Messages live as long as it does. One thread at a time.
class MessageArena {
 public:
  MessageArena() : arena_(first_block_, sizeof(first_block_)) {}
  MessageArena(const MessageArena&) = delete;
  MessageArena& operator=(const MessageArena&) = delete;

  template <typename Message>
  Message& Create() {
    return *google::protobuf::Arena::CreateMessage<Message>(&arena_);
  }

 private:
  alignas(std::max_align_t) char first_block_[4096];
  google::protobuf::Arena arena_;
};

}  // namespace onnxd
