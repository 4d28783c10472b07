package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// patience is how long the go command may take to build one package or one test.
const patience = 10 * time.Minute

// result says which tests noticed a broken place.
type result struct {
	place
	nearness
	// by is the folder of the package that noticed it.
	by string
}

func (r result) String() string {
	if r.nearness == nothing {
		return r.kind
	}
	return r.kind + ", noticed by " + r.by
}

// runner runs tests with broken places.
type runner struct {
	*module
	options
	// temporary is removed at the end. It has folders, which are counted: a name of few letters leaves room
	// for the sockets of tests, whose paths may have 107.
	temporary string
	folders   atomic.Int32
	// wall starts a command so that it cannot reach processes outside, and ends with it. Empty if
	// that cannot be had.
	wall []string
	// saying is held while progress is written to.
	saying   sync.Mutex
	progress io.Writer
}

func newRunner(ctx context.Context, m *module, o options, progress io.Writer) (*runner, error) {
	temporary, err := os.MkdirTemp("", "m")
	if err != nil {
		return nil, err
	}
	r := &runner{module: m, options: o, temporary: temporary, progress: progress}
	wall := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if text, err := exec.CommandContext(ctx, wall[0], append(wall[1:], "true")...).CombinedOutput(); err != nil {
		r.say("no process namespace (%v: %s): what is broken may stop other processes of this user, and what it starts may go on", err, text)
		return r, nil
	}
	r.wall = wall
	return r, nil
}

func (r *runner) close() {
	_ = os.RemoveAll(r.temporary)
}

func (r *runner) say(format string, args ...any) {
	r.saying.Lock()
	defer r.saying.Unlock()
	fmt.Fprintf(r.progress, format+"\n", args...)
}

func (r *runner) newFolder() (string, error) {
	name := filepath.Join(r.temporary, strconv.Itoa(int(r.folders.Add(1))))
	return name, os.Mkdir(name, 0o700)
}

// variant is the module with other files.
type variant struct {
	// folder is for temporary files.
	folder string
	// flags are those of the go command, also when a test calls it.
	flags string
	// building is held while tests are built.
	building sync.Mutex
	// programs are the tests that were built, by package; empty: they do not compile.
	programs map[string]string
}

// variant replaces files, which may be new ones.
func (r *runner) variant(files map[string][]byte) (*variant, error) {
	folder, err := r.newFolder()
	v := &variant{folder: folder, flags: os.Getenv("GOFLAGS"), programs: map[string]string{}}
	if err != nil || files == nil {
		return v, err
	}
	overlay := filepath.Join(folder, "overlay")
	v.flags += " -overlay=" + overlay
	replaced := map[string]string{}
	for name, text := range files {
		replaced[name] = filepath.Join(folder, fmt.Sprint(len(replaced), filepath.Base(name)))
		err = errors.Join(err, os.WriteFile(replaced[name], text, 0o600))
	}
	text, failed := json.Marshal(map[string]any{"Replace": replaced})
	return v, errors.Join(err, failed, os.WriteFile(overlay, text, 0o600))
}

func (v *variant) close() { _ = os.RemoveAll(v.folder) }

// command returns a command that ends with all that it started.
func (r *runner) command(ctx context.Context, v *variant, dir string, words ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOFLAGS="+v.flags, "TMPDIR="+v.folder)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	return command
}

// compiles reports whether a package compiles with the place broken.
func (r *runner) compiles(ctx context.Context, p place) (bool, error) {
	if p.switched != nil {
		return true, nil
	}
	v, err := r.variant(map[string][]byte{p.file: p.broken()})
	if err != nil {
		return false, err
	}
	defer v.close()
	within, stop := context.WithTimeout(ctx, patience)
	defer stop()
	err = r.command(within, v, r.dir, "go", "build", "-o", os.DevNull, p.pkg).Run()
	if within.Err() != nil {
		return false, fmt.Errorf("build %s: %w", p.pkg, within.Err())
	}
	return err == nil, nil
}

// build returns the test program of a package; empty if it does not compile.
func (r *runner) build(ctx context.Context, v *variant, pkg string) string {
	v.building.Lock()
	defer v.building.Unlock()
	program, built := v.programs[pkg]
	if built {
		return program
	}
	program = filepath.Join(v.folder, fmt.Sprint("tests", len(v.programs)))
	within, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if r.command(within, v, r.dir, "go", "test", "-c", "-vet=off", "-ldflags=-s", "-o", program, pkg).Run() != nil {
		program = ""
	}
	v.programs[pkg] = program
	return program
}

// trial says how tests are run.
type trial struct {
	limit time.Duration
	// broken is the number of the place whose switch is on; 0: none.
	broken int
	// met names a file that gets the numbers of the places that are met. May be empty.
	met string
	// names are the tests to run; none: all.
	names []string
	// said names a file that gets what the tests print. May be empty.
	said string
}

// test runs the tests of a package. Tests that do not compile, that take longer than the limit or more
// memory than they may have do not pass.
func (r *runner) test(ctx context.Context, v *variant, pkg string, t trial) (took time.Duration, passed bool, err error) {
	program := r.build(ctx, v, pkg)
	if program == "" {
		return 0, false, ctx.Err()
	}
	folder, err := r.newFolder()
	if err != nil {
		return 0, false, err
	}
	defer os.RemoveAll(folder)
	run := []string{program, "-test.short", "-test.failfast", "-test.timeout=" + t.limit.String()}
	if len(t.names) > 0 {
		run = append(run, "-test.run=^("+strings.Join(t.names, "|")+")$")
	}
	// The shell is the first process of the namespace: it waits for orphans, and a signal that a
	// test sends to itself has its usual effect.
	words := slices.Concat(r.wall, []string{"sh", "-c", `ulimit -d "$1" || exit; shift; "$@"; exit $?`, "sh", strconv.Itoa(r.memory << 10)}, run)
	within, stop := context.WithTimeout(ctx, t.limit+r.slack)
	defer stop()
	command := r.command(within, v, r.packages[pkg].Dir, words...)
	command.Env = append(command.Env, "TMPDIR="+folder, breakVariable+"="+strconv.Itoa(t.broken), metVariable+"="+t.met)
	if t.said != "" {
		said, err := os.Create(t.said)
		if err != nil {
			return 0, false, err
		}
		defer said.Close()
		command.Stdout, command.Stderr = said, said
	}
	begin := time.Now()
	err = command.Run()
	if command.Process != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // What is left without a namespace.
	}
	return time.Since(begin), err == nil, ctx.Err()
}
