/* Counts the children of the front end's forks as holders of each connection. */
#pragma once

/* Installs the fork handlers. Returns 0 or an errno (pthread_atfork's).
 *
 * `count_child(1)` counts the child as a holder of every connection, before it exists, so that neither process can take itself for the
 * last holder, and returns how many connections there are. `count_child(-1)` undoes that if the fork fails. Called by the fork itself,
 * in the parent. */
int fs_atfork_install(int (*count_child)(int by));

/* The handlers themselves, for a fork that runs none (_Fork(3), clone(2)). errno is that of a failed fork in the parent. */
void fs_before_fork(void);
void fs_after_fork_in_parent(void);
void fs_after_fork_in_child(void);

/* 1: this thread is about to fork for the front end. 0: the fork is over or did not happen. */
void fs_expect_fork(int comes);
