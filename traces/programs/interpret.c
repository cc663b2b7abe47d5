/* A small interpreter: assignments, print, while, if and functions of one argument. It is what traces/make compiles. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { NUMBER, NAME, BINARY, UNARY, CALL, ASSIGN, PRINT, LOOP, BRANCH, BLOCK, FUNCTION, RETURN };

struct tree {
    enum kind kind;
    int op;
    double number;
    char *name;
    struct tree *part[3];
    struct tree *next;
};

struct token {
    int kind;
    double number;
    char text[64];
    int line;
};

struct lexer {
    const char *at;
    int line;
    struct token now;
};

enum { END = 256, NUM, WORD, WHILE, IF, ELSE, PRINTS, DEF, RET, EQ, NE, LE, GE, AND, OR };

static const struct { const char *word; int kind; } words[] = {
    { "while", WHILE }, { "if", IF }, { "else", ELSE }, { "print", PRINTS }, { "def", DEF }, { "return", RET },
    { "and", AND }, { "or", OR },
};

static const struct { char first, second; int kind; } doubles[] = {
    { '=', '=', EQ }, { '!', '=', NE }, { '<', '=', LE }, { '>', '=', GE },
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void fail(int line, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "line %d: ", line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        fail(0, "no memory for %zu bytes", bytes);
    return memory;
}

/* Tokens. */

static void skip_blanks(struct lexer *in)
{
    for (;;) {
        if (*in->at == '#') {
            while (*in->at && *in->at != '\n')
                in->at++;
        } else if (isspace((unsigned char)*in->at)) {
            in->line += *in->at++ == '\n';
        } else {
            return;
        }
    }
}

static void advance(struct lexer *in)
{
    struct token *token = &in->now;
    skip_blanks(in);
    token->line = in->line;
    if (!*in->at) {
        token->kind = END;
        return;
    }
    if (isdigit((unsigned char)*in->at)) {
        char *end;
        token->number = strtod(in->at, &end);
        token->kind = NUM;
        in->at = end;
        return;
    }
    if (isalpha((unsigned char)*in->at) || *in->at == '_') {
        size_t n = 0;
        while (isalnum((unsigned char)*in->at) || *in->at == '_') {
            if (n + 1 >= sizeof token->text)
                fail(in->line, "a name is too long");
            token->text[n++] = *in->at++;
        }
        token->text[n] = 0;
        token->kind = WORD;
        for (size_t i = 0; i < COUNT(words); i++)
            if (!strcmp(words[i].word, token->text))
                token->kind = words[i].kind;
        return;
    }
    for (size_t i = 0; i < COUNT(doubles); i++) {
        if (in->at[0] == doubles[i].first && in->at[1] == doubles[i].second) {
            token->kind = doubles[i].kind;
            in->at += 2;
            return;
        }
    }
    token->kind = (unsigned char)*in->at++;
}

static int accept(struct lexer *in, int kind)
{
    if (in->now.kind != kind)
        return 0;
    advance(in);
    return 1;
}

static void expect(struct lexer *in, int kind)
{
    if (!accept(in, kind))
        fail(in->now.line, "'%c' was expected", kind < 256 ? kind : '?');
}

/* Trees. */

static struct tree *plant(enum kind kind, int op, struct tree *left, struct tree *right)
{
    struct tree *tree = take(sizeof *tree);
    tree->kind = kind;
    tree->op = op;
    tree->part[0] = left;
    tree->part[1] = right;
    return tree;
}

static struct tree *named(enum kind kind, const char *name, struct tree *part)
{
    struct tree *tree = plant(kind, 0, part, NULL);
    size_t length = strlen(name) + 1;
    tree->name = memcpy(take(length), name, length);
    return tree;
}

static struct tree *expression(struct lexer *in, int level);

static struct tree *primary(struct lexer *in)
{
    struct token token = in->now;
    if (accept(in, NUM)) {
        struct tree *tree = plant(NUMBER, 0, NULL, NULL);
        tree->number = token.number;
        return tree;
    }
    if (accept(in, WORD)) {
        if (accept(in, '(')) {
            struct tree *argument = expression(in, 0);
            expect(in, ')');
            return named(CALL, token.text, argument);
        }
        return named(NAME, token.text, NULL);
    }
    if (accept(in, '-'))
        return plant(UNARY, '-', primary(in), NULL);
    if (accept(in, '!'))
        return plant(UNARY, '!', primary(in), NULL);
    if (accept(in, '(')) {
        struct tree *tree = expression(in, 0);
        expect(in, ')');
        return tree;
    }
    fail(token.line, "no expression begins here");
    return NULL;
}

static int binds(int op)
{
    switch (op) {
    case OR: return 1;
    case AND: return 2;
    case EQ: case NE: return 3;
    case '<': case '>': case LE: case GE: return 4;
    case '+': case '-': return 5;
    case '*': case '/': case '%': return 6;
    default: return 0;
    }
}

static struct tree *expression(struct lexer *in, int level)
{
    struct tree *left = primary(in);
    for (;;) {
        int op = in->now.kind, strength = binds(op);
        if (!strength || strength <= level)
            return left;
        advance(in);
        left = plant(BINARY, op, left, expression(in, strength));
    }
}

static struct tree *statement(struct lexer *in);

static struct tree *block(struct lexer *in)
{
    struct tree *all = plant(BLOCK, 0, NULL, NULL), **last = &all->part[0];
    expect(in, '{');
    while (!accept(in, '}')) {
        *last = statement(in);
        last = &(*last)->next;
    }
    return all;
}

static struct tree *statement(struct lexer *in)
{
    struct token token = in->now;
    struct tree *tree;
    if (token.kind == '{')
        return block(in);
    if (accept(in, WHILE)) {
        tree = plant(LOOP, 0, expression(in, 0), NULL);
        tree->part[1] = block(in);
        return tree;
    }
    if (accept(in, IF)) {
        tree = plant(BRANCH, 0, expression(in, 0), NULL);
        tree->part[1] = block(in);
        if (accept(in, ELSE))
            tree->part[2] = in->now.kind == IF ? statement(in) : block(in);
        return tree;
    }
    if (accept(in, DEF)) {
        char name[64];
        memcpy(name, in->now.text, sizeof name);
        expect(in, WORD);
        expect(in, '(');
        tree = named(FUNCTION, name, named(NAME, in->now.text, NULL));
        expect(in, WORD);
        expect(in, ')');
        tree->part[1] = block(in);
        return tree;
    }
    if (accept(in, PRINTS)) {
        tree = plant(PRINT, 0, expression(in, 0), NULL);
    } else if (accept(in, RET)) {
        tree = plant(RETURN, 0, expression(in, 0), NULL);
    } else {
        tree = expression(in, 0);
        if (accept(in, '=')) {
            if (tree->kind != NAME)
                fail(token.line, "only a name is assigned to");
            tree = named(ASSIGN, tree->name, expression(in, 0));
        }
    }
    expect(in, ';');
    return tree;
}

/* Values: a table of names with open addressing for each call. */

struct entry {
    const char *name;
    double value;
    struct tree *function;
};

struct scope {
    struct entry *entries;
    size_t size, used;
    struct scope *outer;
    int returned;
    double result;
};

static unsigned hash(const char *name)
{
    unsigned h = 2166136261u;
    while (*name)
        h = (h ^ (unsigned char)*name++) * 16777619u;
    return h;
}

static struct entry *find(struct scope *scope, const char *name)
{
    size_t mask = scope->size - 1, i = hash(name) & mask;
    while (scope->entries[i].name && strcmp(scope->entries[i].name, name))
        i = (i + 1) & mask;
    return &scope->entries[i];
}

static void open_scope(struct scope *scope, struct scope *outer)
{
    memset(scope, 0, sizeof *scope);
    scope->size = 16;
    scope->entries = take(scope->size * sizeof *scope->entries);
    scope->outer = outer;
}

static struct entry *enter(struct scope *scope, const char *name)
{
    struct entry *entry = find(scope, name);
    if (entry->name)
        return entry;
    if (2 * ++scope->used > scope->size) {
        struct entry *old = scope->entries;
        size_t size = scope->size;
        scope->size *= 2;
        scope->entries = take(scope->size * sizeof *old);
        for (size_t i = 0; i < size; i++)
            if (old[i].name)
                *find(scope, old[i].name) = old[i];
        free(old);
        entry = find(scope, name);
    }
    entry->name = name;
    return entry;
}

static struct entry *lookup(struct scope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        struct entry *entry = find(scope, name);
        if (entry->name)
            return entry;
    }
    fail(0, "nothing is called %s", name);
    return NULL;
}

static double evaluate(struct scope *scope, struct tree *tree);

static double operate(int op, double a, double b)
{
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return b == 0 ? 0 : a / b;
    case '%': return b == 0 ? 0 : fmod(a, b);
    case '<': return a < b;
    case '>': return a > b;
    case LE: return a <= b;
    case GE: return a >= b;
    case EQ: return a == b;
    case NE: return a != b;
    default: fail(0, "no such operation: %d", op); return 0;
    }
}

static void run(struct scope *scope, struct tree *tree)
{
    for (tree = tree->part[0]; tree && !scope->returned; tree = tree->next)
        evaluate(scope, tree);
}

static double call(struct scope *scope, struct tree *tree)
{
    static const struct { const char *name; double (*function)(double); } known[] = {
        { "sqrt", sqrt }, { "sin", sin }, { "cos", cos }, { "exp", exp }, { "log", log }, { "floor", floor },
    };
    double argument = evaluate(scope, tree->part[0]);
    for (size_t i = 0; i < COUNT(known); i++)
        if (!strcmp(known[i].name, tree->name))
            return known[i].function(argument);
    struct tree *function = lookup(scope, tree->name)->function;
    if (!function)
        fail(0, "%s is no function", tree->name);
    struct scope inner, *global = scope;
    while (global->outer)
        global = global->outer;
    open_scope(&inner, global);
    enter(&inner, function->part[0]->name)->value = argument;
    run(&inner, function->part[1]);
    free(inner.entries);
    return inner.result;
}

static double evaluate(struct scope *scope, struct tree *tree)
{
    double value;
    switch (tree->kind) {
    case NUMBER:
        return tree->number;
    case NAME:
        return lookup(scope, tree->name)->value;
    case UNARY:
        value = evaluate(scope, tree->part[0]);
        return tree->op == '-' ? -value : !value;
    case BINARY:
        value = evaluate(scope, tree->part[0]);
        if (tree->op == AND || tree->op == OR)
            return (value != 0) == (tree->op == OR) ? value : evaluate(scope, tree->part[1]);
        return operate(tree->op, value, evaluate(scope, tree->part[1]));
    case CALL:
        return call(scope, tree);
    case ASSIGN:
        value = evaluate(scope, tree->part[0]);
        return enter(scope, tree->name)->value = value;
    case PRINT:
        return printf("%g\n", evaluate(scope, tree->part[0]));
    case LOOP:
        while (!scope->returned && evaluate(scope, tree->part[0]))
            run(scope, tree->part[1]);
        return 0;
    case BRANCH:
        if (evaluate(scope, tree->part[0]))
            run(scope, tree->part[1]);
        else if (tree->part[2])
            tree->part[2]->kind == BLOCK ? run(scope, tree->part[2]) : (void)evaluate(scope, tree->part[2]);
        return 0;
    case FUNCTION:
        enter(scope, tree->name)->function = tree;
        return 0;
    case RETURN:
        scope->result = evaluate(scope, tree->part[0]);
        scope->returned = 1;
        return scope->result;
    default:
        run(scope, tree);
        return 0;
    }
}

static char *contents(FILE *file)
{
    size_t size = 4096, used = 0, got;
    char *text = take(size);
    while ((got = fread(text + used, 1, size - used - 1, file)) > 0) {
        used += got;
        if (size - used < 2) {
            char *more = realloc(text, size *= 2);
            if (!more)
                fail(0, "no memory for the program");
            text = more;
        }
    }
    text[used] = 0;
    return text;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "r") : stdin;
    if (!file)
        fail(0, "%s cannot be read", argv[1]);
    struct lexer in = { contents(file), 1, { 0 } };
    struct scope global;
    open_scope(&global, NULL);
    advance(&in);
    while (in.now.kind != END)
        evaluate(&global, statement(&in));
    return 0;
}
