/* For cppcheck, which does not see the system's headers: the macros that it must know to parse the code. */
/* clang-format off: one macro a line */
#define SLIST_HEAD(name, type)                                                                                         \
    struct name {                                                                                                      \
        struct type *slh_first;                                                                                        \
    }
#define SLIST_ENTRY(type)                                                                                              \
    struct {                                                                                                           \
        struct type *sle_next;                                                                                         \
    }
#define TAILQ_HEAD(name, type)                                                                                         \
    struct name {                                                                                                      \
        struct type *tqh_first, **tqh_last;                                                                            \
    }
#define STAILQ_HEAD(name, type)                                                                                        \
    struct name {                                                                                                      \
        struct type *stqh_first, **stqh_last;                                                                          \
    }
#define LIST_HEAD(name, type)                                                                                          \
    struct name {                                                                                                      \
        struct type *lh_first;                                                                                         \
    }
#define TAILQ_ENTRY(type)                                                                                              \
    struct {                                                                                                           \
        struct type *tqe_next, **tqe_prev;                                                                             \
    }
#define STAILQ_ENTRY(type)                                                                                             \
    struct {                                                                                                           \
        struct type *stqe_next;                                                                                        \
    }
#define LIST_ENTRY(type)                                                                                               \
    struct {                                                                                                           \
        struct type *le_next, **le_prev;                                                                               \
    }
#define TAILQ_FOREACH(item, head, link)         for (item = (head)->tqh_first; item; item = item->link.tqe_next)
#define LIST_FOREACH(item, head, link)          for (item = (head)->lh_first; item; item = item->link.le_next)
#define STAILQ_FOREACH(item, head, link)        for (item = (head)->stqh_first; item; item = item->link.stqe_next)
#define json_array_foreach(array, index, value) for (index = 0; (value = json_array_get(array, index)) != 0; index++)
#define json_object_foreach(object, key, value)                                                                        \
    for (key = next_key(object, &value); key != 0; key = next_key(object, &value))
