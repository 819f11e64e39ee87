/* What the service manager is told, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/notify/notify.h"

static int manager = -1;
static char name[64];

/* A manager that listens on a socket without a file. */
static int listening(void **state) {
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(name, sizeof(name), "@chart-notify-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    if (manager < 0 || bind(manager, (struct sockaddr *)&address, length))
        return -1;
    setenv("NOTIFY_SOCKET", name, 1);
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

static int closing(void **state) {
    (void)state;
    return close(manager);
}

/* The next datagram; "" when there is none. */
static const char *heard(void) {
    static char text[64];
    ssize_t length = recv(manager, text, sizeof(text) - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

static void states_arrive(void **state) {
    (void)state;
    notify_ready();
    assert_string_equal(heard(), "READY=1");
    notify_stopping();
    assert_string_equal(heard(), "STOPPING=1");
    notify_alive();
    assert_string_equal(heard(), "WATCHDOG=1");
}

static void nobody_is_told_without_a_socket(void **state) {
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    notify_ready();
    setenv("NOTIFY_SOCKET", "relative", 1);
    notify_ready();
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
    notify_ready();
    assert_string_equal(heard(), "");
}

static void period_is_half_of_the_watchdog(void **state) {
    (void)state;
    char other[32], own[32];
    assert_int_equal(notify_period_us(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(notify_period_us(), 15000000);
    snprintf(other, sizeof(other), "%d", (int)getpid() + 1);
    setenv("WATCHDOG_PID", other, 1);
    assert_int_equal(notify_period_us(), 0);
    snprintf(own, sizeof(own), "%d", (int)getpid());
    setenv("WATCHDOG_PID", own, 1);
    assert_int_equal(notify_period_us(), 15000000);
    setenv("WATCHDOG_USEC", "soon", 1);
    assert_int_equal(notify_period_us(), 0);
}

static void a_loop_tells_once_in_a_period(void **state) {
    (void)state;
    notify_alive_at(1000000);
    assert_string_equal(heard(), "");
    setenv("WATCHDOG_USEC", "2000000", 1);
    notify_alive_at(5000000);
    assert_string_equal(heard(), "WATCHDOG=1");
    notify_alive_at(5999999);
    assert_string_equal(heard(), "");
    notify_alive_at(6000000);
    assert_string_equal(heard(), "WATCHDOG=1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(states_arrive, listening, closing),
        cmocka_unit_test_setup_teardown(nobody_is_told_without_a_socket, listening, closing),
        cmocka_unit_test_setup_teardown(period_is_half_of_the_watchdog, listening, closing),
        cmocka_unit_test_setup_teardown(a_loop_tells_once_in_a_period, listening, closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
