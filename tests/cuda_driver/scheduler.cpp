#include "scheduler.h"

#include <algorithm>
#include <utility>

namespace weightpress::cuda_driver {

Scheduler::Scheduler(std::mutex& driver_mutex, std::uint64_t seed, std::uint32_t eager_percent, Trace& trace,
                     std::function<void(const Operation&, const Failure&)> on_failure)
    : mutex_(driver_mutex),
      seed_(seed),
      eager_percent_(eager_percent),
      random_(seed),
      trace_(trace),
      on_failure_(std::move(on_failure)) {
  // A third of the seeds is strictly late.
  if (seed != 0) extra_percent_ = static_cast<std::uint32_t>(seed % 3) * 25;
}

Scheduler::~Scheduler() {
  // Front to back, so that no chain of operations is destroyed by recursion.
  for (const OperationPtr& operation : untimed_) {
    operation->waits_for.clear();
    operation->after_host.reset();
  }
}

OperationPtr Scheduler::enqueue(Operation given, std::vector<OperationPtr> waits_for,
                                OperationPtr after_host) {
  auto operation = std::make_shared<Operation>(std::move(given));
  operation->sequence = next_sequence_++;
  operation->waits_for = std::move(waits_for);
  std::erase(operation->waits_for, nullptr);
  operation->after_host = std::move(after_host);
  for (const OperationPtr& other : operation->waits_for) {
    if (other->is_over()) continue;
    other->waited_for_by.push_back(operation.get());
    ++operation->num_unmet;
  }
  if (operation->unlocks) ++num_host_functions_;
  untimed_.push_back(operation);
  if (operation->num_unmet == 0) ready_.push_back(operation);
  if (eager_percent_ != 0) run_eagerly();
  return operation;
}

OperationPtr Scheduler::host_wait(const OperationPtr& before, const OperationPtr& target) {
  if (target == nullptr) return before;
  auto wait = std::make_shared<Operation>();
  wait->kind = "host_wait";
  wait->sequence = next_sequence_++;
  wait->context = target->context;
  wait->device = target->device;
  wait->stream = target->stream;
  wait->engine = Engine::kHost;
  wait->waits_for = {target};
  wait->after_host = before;
  wait->state = OperationState::kDone;
  untimed_.push_back(wait);
  resolve_times();
  return wait;
}

void Scheduler::run_eagerly() {
  while (!ready_.empty() && chance(eager_percent_)) {
    const OperationPtr operation = ready_[random_() % ready_.size()];
    if (operation->unlocks) break;  // the caller is in the middle of something
    run(operation);
  }
}

OperationPtr Scheduler::pick(std::uint64_t wanted_by) {
  std::vector<OperationPtr> wanted, others;
  for (const OperationPtr& operation : ready_)
    (operation->wanted_by == wanted_by ? wanted : others).push_back(operation);
  if (wanted.empty()) return nullptr;
  std::vector<OperationPtr>& from = !others.empty() && chance(extra_percent_) ? others : wanted;
  std::ranges::sort(from, {}, &Operation::sequence);
  return from[seed_ == 0 ? 0 : random_() % from.size()];
}

void Scheduler::force(const OperationPtr& operation) {
  if (operation != nullptr) force(std::vector<OperationPtr>{operation});
}

void Scheduler::mark(const std::vector<OperationPtr>& targets, std::uint64_t number) {
  std::vector<Operation*> todo;
  for (const OperationPtr& target : targets) todo.push_back(target.get());
  while (!todo.empty()) {
    Operation* const operation = todo.back();
    todo.pop_back();
    if (operation->is_over() || operation->wanted_by == number) continue;
    operation->wanted_by = number;
    for (const OperationPtr& other : operation->waits_for) todo.push_back(other.get());
  }
}

void Scheduler::force(const std::vector<OperationPtr>& targets) {
  if (std::ranges::all_of(targets, &Operation::is_over)) return;
  ++num_active_forces_;
  std::uint64_t number = ++num_forces_;
  mark(targets, number);
  while (!std::ranges::all_of(targets, &Operation::is_over)) {
    const OperationPtr next = pick(number);
    const std::uint64_t unlocked_before = num_unlocks_;
    if (next != nullptr) {
      run(next);
    } else {
      ++num_unlocks_;
      changed_.wait(mutex_);  // another thread runs a host function that this one needs
    }
    if (num_unlocks_ != unlocked_before) {  // others may have set marks of their own meanwhile
      number = ++num_forces_;
      mark(targets, number);
    }
  }
  --num_active_forces_;
  changed_.notify_all();
}

void Scheduler::wait_until_idle() {
  changed_.wait(mutex_, [this] { return num_active_forces_ == 0; });
}

void Scheduler::run(const OperationPtr& operation) {
  operation->state = OperationState::kRunning;
  std::erase(ready_, operation);
  std::optional<Failure> failure;
  if (const auto body = std::exchange(operation->run, nullptr)) {
    if (operation->unlocks) {
      ++num_unlocks_;
      mutex_.unlock();
      body(*operation);
      mutex_.lock();
    } else {
      try {
        failure = body(*operation);
      } catch (const std::exception& trouble) {
        failure = Failure{CUDA_ERROR_LAUNCH_FAILED, trouble.what()};
      }
    }
  }
  if (failure) operation->failure = failure->message;
  end(operation, OperationState::kDone);
  if (failure) on_failure_(*operation, *failure);
  resolve_times();
  changed_.notify_all();
}

void Scheduler::end(const OperationPtr& operation, OperationState state) {
  operation->state = state;
  operation->run = nullptr;
  if (operation->unlocks) --num_host_functions_;
  for (Operation* const other : operation->waited_for_by) {
    if (--other->num_unmet == 0 && other->state == OperationState::kPending)
      ready_.push_back(other->shared_from_this());
  }
  operation->waited_for_by.clear();
}

std::vector<OperationPtr> Scheduler::unfinished(const std::function<bool(const Operation&)>& which) const {
  std::vector<OperationPtr> found;
  for (const OperationPtr& operation : untimed_)
    if (!operation->is_over() && which(*operation)) found.push_back(operation);
  return found;
}

void Scheduler::force_context(std::uint64_t context) {
  force(unfinished([context](const Operation& operation) { return operation.context == context; }));
}

void Scheduler::force_all() {
  force(unfinished([](const Operation&) { return true; }));
}

void Scheduler::force_times(const OperationPtr& operation) {
  const std::uint64_t last = operation->sequence;
  force(unfinished([last](const Operation& other) { return other.sequence <= last; }));
}

void Scheduler::force_host_functions() {
  force(unfinished([](const Operation& operation) { return operation.unlocks; }));
}

bool Scheduler::poll(const OperationPtr& operation) {
  if (operation == nullptr || operation->is_over()) return true;
  ++operation->num_queries;
  if (seed_ == 0 ? operation->num_queries < 2 : operation->num_queries < kMostQueries && !chance(25))
    return false;
  force(operation);
  return true;
}

void Scheduler::cancel(std::uint64_t context) {
  const auto gone = unfinished([context](const Operation& operation) {
    return operation.context == context && operation.state == OperationState::kPending;
  });
  for (const OperationPtr& operation : gone) operation->state = OperationState::kCancelled;
  for (const OperationPtr& operation : gone) end(operation, OperationState::kCancelled);
  std::erase_if(ready_, [](const OperationPtr& operation) { return operation->is_over(); });
  resolve_times();
  changed_.notify_all();
}

void Scheduler::finish(bool has_program_memory) {
  for (const OperationPtr& operation : unfinished([](const Operation&) { return true; })) {
    if (operation->state == OperationState::kRunning) return;  // a host function that never ends
    if (operation->unlocks || operation->touches_program_memory ||
        (has_program_memory && operation->engine == Engine::kCompute)) {
      operation->run = nullptr;
      operation->is_abandoned = true;
    }
  }
  force_all();
}

void Scheduler::resolve_times() {
  while (!untimed_.empty() && untimed_.front()->is_over()) {
    const OperationPtr operation = std::move(untimed_.front());
    untimed_.pop_front();
    std::uint64_t ready_ns = operation->after_host != nullptr ? operation->after_host->end_ns : 0;
    const std::uint64_t host_ns = ready_ns;
    for (const OperationPtr& other : operation->waits_for) ready_ns = std::max(ready_ns, other->end_ns);
    const bool is_wait = operation->engine == Engine::kHost && !operation->unlocks;
    const bool is_cancelled = operation->state == OperationState::kCancelled;
    if (is_cancelled) operation->duration_ns = 0;
    operation->start_ns =
        is_wait ? host_ns
                : timeline_.place(operation->device, operation->engine, ready_ns, operation->duration_ns);
    operation->end_ns = is_wait ? ready_ns : operation->start_ns + operation->duration_ns;
    operation->is_timed = true;
    operation->waits_for.clear();
    operation->after_host.reset();
    trace_.write(*operation, is_cancelled ? "cancelled" : operation->is_abandoned ? "abandoned" : "done");
  }
}

}  // namespace weightpress::cuda_driver
