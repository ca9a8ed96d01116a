/* Starts a program as a container runtime starts one: `confined USER PROGRAM ARGUMENTS`, in the namespaces of its caller.
 *
 * A user without capabilities (root keeps those that Docker leaves it), no_new_privs, and a filter that refuses what Docker's default
 * profile (moby/profiles, seccomp/default.json) refuses a process without capabilities on Linux 4.8 and later. That profile lists what is
 * allowed; this has the rest of the system calls by name, and those that are newer than the profile. */
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP */
#define ROOT_KEEPS ((1ull << 0) | 1ull << 1 | 1ull << 3 | 1ull << 4 | 1ull << 5 | 1ull << 6 | 1ull << 7 | 1ull << 8 | 1ull << 10 | \
                    1ull << 13 | 1ull << 18 | 1ull << 27 | 1ull << 29 | 1ull << 31)
#define NAMESPACES 0x7e020000u /* CLONE_NEW*, as the profile has them */

static const int REFUSED[] = {
    SYS_acct, SYS_add_key, SYS_bpf, SYS_chroot, SYS_clock_settime, SYS_delete_module, SYS_fanotify_init, SYS_finit_module, SYS_fsconfig,
    SYS_fsmount, SYS_fsopen, SYS_fspick, SYS_get_mempolicy, SYS_init_module, SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup,
    SYS_kcmp, SYS_kexec_load, SYS_keyctl, SYS_mbind, SYS_migrate_pages, SYS_mount, SYS_mount_setattr, SYS_move_mount, SYS_move_pages,
    SYS_nfsservctl, SYS_open_by_handle_at, SYS_open_tree, SYS_perf_event_open, SYS_pidfd_getfd, SYS_pivot_root, SYS_process_madvise,
    SYS_quotactl, SYS_quotactl_fd, SYS_reboot, SYS_request_key, SYS_set_mempolicy, SYS_set_mempolicy_home_node, SYS_setdomainname,
    SYS_sethostname, SYS_setns, SYS_settimeofday, SYS_swapoff, SYS_swapon, SYS_syslog, SYS_umount2, SYS_unshare, SYS_userfaultfd,
    SYS_vhangup,
#ifdef __x86_64__
    SYS__sysctl, SYS_afs_syscall, SYS_create_module, SYS_get_kernel_syms, SYS_getpmsg, SYS_ioperm, SYS_iopl, SYS_kexec_file_load,
    SYS_lookup_dcookie, SYS_putpmsg, SYS_query_module, SYS_security, SYS_sysfs, SYS_tuxcall, SYS_uselib, SYS_ustat, SYS_vserver,
#endif
};
enum { COUNT = sizeof REFUSED / sizeof *REFUSED, LAST_KNOWN = 462 /* mseal */ };

static struct sock_filter filter[2 * COUNT + 32];
static unsigned short length;

static void add(unsigned short code, unsigned char yes, unsigned char no, unsigned value) {
    filter[length++] = (struct sock_filter){code, yes, no, value};
}
static void answer(unsigned error) { add(BPF_RET | BPF_K, 0, 0, error ? SECCOMP_RET_ERRNO | error : SECCOMP_RET_ALLOW); }
static void load(unsigned offset) { add(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset); }

static void fail(const char *what) {
    perror(what);
    exit(125);
}

static void make_filter(void) {
    load(offsetof(struct seccomp_data, nr));
    add(BPF_JMP | BPF_JGT | BPF_K, 0, 1, LAST_KNOWN);
    answer(ENOSYS);
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_clone3);
    answer(ENOSYS); /* (so that the C library takes clone, whose flags a filter can see) */
    for (int i = 0; i < COUNT; i++) {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (unsigned)REFUSED[i]);
        answer(EPERM);
    }
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_clone);
    load(offsetof(struct seccomp_data, args[0]));
    add(BPF_JMP | BPF_JSET | BPF_K, 0, 1, NAMESPACES);
    answer(EPERM);
    answer(0);
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, SYS_socket);
    load(offsetof(struct seccomp_data, args[0]));
    add(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AF_ALG);
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, AF_VSOCK);
    answer(EPERM);
    answer(0);
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_personality);
    load(offsetof(struct seccomp_data, args[0]));
    add(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 0xffffffff); /* asks */
    add(BPF_JMP | BPF_JSET | BPF_K, 0, 1, ~0x20008u); /* not UNAME26, PER_LINUX32 */
    answer(EPERM);
    answer(0);
}

int main(int count, char **arguments) {
    if (count < 3) return 125;
    unsigned user = (unsigned)atoi(arguments[1]);
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
        if (user || !(ROOT_KEEPS >> capability & 1))
            if (prctl(PR_CAPBSET_DROP, capability)) fail("PR_CAPBSET_DROP");
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user)) fail("user");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("PR_SET_NO_NEW_PRIVS");
    make_filter();
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("PR_SET_SECCOMP");
    execvp(arguments[2], arguments + 2);
    fail(arguments[2]);
}
