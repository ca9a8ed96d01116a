/* A thread's id and its list of robust futexes. See robust_lock.h. */
#include "ring/robust_lock.h"

__thread struct fs_robust_thread fs_robust_thread FS_TLS_MODEL;

__attribute__((noinline)) void fs_robust_thread_init(struct fs_robust_thread *me, uint32_t process) {
    size_t size = 0;
    me->list = NULL;
    me->thread = (uint32_t)fs_system.gettid();
    me->spare.list.next = &me->spare.list;
    me->spare.futex_offset = FS_ROBUST_OFFSET;
    me->spare.list_op_pending = NULL;
    if (fs_system.get_robust_list(0, &me->list, &size) != 0) me->list = NULL;
    if (!me->list && fs_system.set_robust_list(&me->spare, sizeof me->spare) == 0) me->list = &me->spare;
    /* Another C library's list: locking works, but a dead holder keeps its lock. */
    if (!me->list || me->list->futex_offset != FS_ROBUST_OFFSET) me->list = &me->spare;
    me->process = process;
}
