// Coroutines, one for each CUDA thread of a block: they run one at a time and give way only where they wait.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <ucontext.h>

namespace kdsl {

class Fiber {
 public:
  // `body(argument)` is called each time the fiber is resumed after it has returned.
  void create(void (*body)(void*), void* argument);
  bool created() const { return stack_ != nullptr; }
  void resume();  // runs it until it gives way or its body returns

  static void give_way();  // back to whoever resumed the running fiber

 private:
  static void start(unsigned high, unsigned low);

  jmp_buf context_;
  ucontext_t first_;
  char* stack_ = nullptr;
  bool started_ = false;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace kdsl
