#include "host/host_stages.h"

#include <omp.h>

namespace weightpress::host {

int default_num_threads() {
  return omp_get_max_threads();
}

}  // namespace weightpress::host
