/* Forks of the front end's, of which each connection is told at the last moment. */
#ifndef FASTSOCK_ATFORK_H
#define FASTSOCK_ATFORK_H

/* Watches the forks of this process, once. 0 or an errno (pthread_atfork's).
 *
 * `count_child` counts the child in as a holder of every connection (1), before it exists, and returns how many there are, so that neither side can
 * believe for a moment that it is the last; and out again, if the fork fails (-1). Called by the fork itself, in the
 * thread that announced it, which has the front end's lock all the time: nothing can come between. It tells who sleeps
 * here (fs_fd_change_notify): the child may take a wakeup that was for them and be killed with it, so that they have to
 * look now and then (fs_sleep). */
int fs_atfork_install(int (*count_child)(int by));

/* This thread is about to fork for the front end (1); or has not done it, or is done (0). */
void fs_expect_fork(int comes);

#endif
