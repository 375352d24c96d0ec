// A rank that leaves a value in the run's store; rank 0 goes at once, the others read its value afterwards.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ddp/comm/store.h"

int main() {
  const std::string rank = std::getenv("RANK");
  ddp::comm::TCPStore store(std::getenv("MASTER_ADDR"),
                            static_cast<std::uint16_t>(std::atoi(std::getenv("MASTER_PORT"))),
                            std::chrono::seconds(20));
  if (rank == "0") {
    store.set_text("from 0", "still here");
    store.set_text("pid of 0", std::to_string(::getpid()));
    return 0;
  }
  const int pid = std::atoi(store.get_text("pid of 0", std::chrono::seconds(20)).c_str());
  for (int i = 0; i < 2000 && ::access(("/proc/" + std::to_string(pid)).c_str(), F_OK) == 0; ++i) ::usleep(10000);
  std::puts(store.get_text("from 0", std::chrono::seconds(20)).c_str());
}
