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
	"syscall"
	"time"

	"golang.org/x/tools/cover"
)

// building is how long the go command may take to build one package or one test.
const building = 10 * time.Minute

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
	// temporary is removed at the end.
	temporary string
	// wall starts a command so that it cannot reach processes outside, and ends with it. Empty if
	// that cannot be had.
	wall     []string
	progress io.Writer
	// usual has what the tests of a package do with nothing broken.
	usual map[string]clean
}

// clean is a run of the tests of a package with nothing broken.
type clean struct {
	// took is 0 if the tests fail.
	took time.Duration
	// blocks are those of functions, by file as <import path>/<name>, each with how often it ran.
	blocks map[string][]cover.ProfileBlock
}

// reaches reports whether the tests may meet a place: they execute its line, or it is in no function,
// as constants are. Other processes that the tests start are not seen.
func (c clean) reaches(p place) bool {
	within := false
	for _, b := range c.blocks[p.pkg+"/"+filepath.Base(p.file)] {
		if b.StartLine <= p.line && p.line <= b.EndLine {
			if within = true; b.Count > 0 {
				return true
			}
		}
	}
	return !within
}

func newRunner(ctx context.Context, m *module, o options, progress io.Writer) (*runner, error) {
	temporary, err := os.MkdirTemp("", "m")
	if err != nil {
		return nil, err
	}
	r := &runner{module: m, options: o, temporary: temporary, progress: progress, usual: map[string]clean{}}
	wall := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if text, err := exec.CommandContext(ctx, wall[0], append(wall[1:], "true")...).CombinedOutput(); err != nil {
		fmt.Fprintf(progress, "no process namespace (%v: %s): what is broken may stop other processes of this user, and what it starts may go on\n", err, text)
		return r, nil
	}
	r.wall = wall
	return r, nil
}

func (r *runner) close() {
	_ = os.RemoveAll(r.temporary)
}

// changed is a folder for temporary files and the environment in which the go command sees the
// place broken, also when a test calls it.
type changed struct {
	folder string
	flags  string
}

// change has nothing broken if p is nil.
func (r *runner) change(p *place) (c changed, err error) {
	c.flags = os.Getenv("GOFLAGS")
	if c.folder, err = os.MkdirTemp(r.temporary, ""); err != nil || p == nil {
		return c, err
	}
	file, overlay := filepath.Join(c.folder, filepath.Base(p.file)), filepath.Join(c.folder, "overlay")
	c.flags += " -overlay=" + overlay
	text, err := json.Marshal(map[string]map[string]string{"Replace": {p.file: file}})
	if err == nil {
		err = errors.Join(os.WriteFile(file, p.broken(), 0o600), os.WriteFile(overlay, text, 0o600))
	}
	return c, err
}

// command returns a command that ends with all that it started.
func (r *runner) command(ctx context.Context, c changed, dir string, words ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOFLAGS="+c.flags, "TMPDIR="+c.folder)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	return command
}

// compiles reports whether a package compiles with the place broken.
func (r *runner) compiles(ctx context.Context, p place) (bool, error) {
	c, err := r.change(&p)
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(c.folder)
	within, stop := context.WithTimeout(ctx, building)
	defer stop()
	err = r.command(within, c, r.dir, "go", "build", "-o", os.DevNull, p.pkg).Run()
	if within.Err() != nil {
		return false, fmt.Errorf("build %s: %w", p.pkg, within.Err())
	}
	return err == nil, nil
}

// clean runs the tests of a package with nothing broken, once.
func (r *runner) clean(ctx context.Context, pkg string) (found clean) {
	if known, ok := r.usual[pkg]; ok {
		return known
	}
	c, err := r.change(nil)
	defer os.RemoveAll(c.folder)
	profile := filepath.Join(c.folder, "profile")
	for range 2 { // A busy machine can be too slow for a test.
		if err != nil || ctx.Err() != nil {
			return clean{}
		}
		took, passed, _ := r.test(ctx, c, pkg, time.Hour, profile)
		if !passed {
			continue
		}
		if found.blocks, err = blocksOf(profile); err != nil {
			fmt.Fprintf(r.progress, "read which lines the tests of %s execute: %v\n", pkg, err)
			return clean{}
		}
		found.took = took
		r.usual[pkg] = found
		return found
	}
	r.usual[pkg] = clean{}
	fmt.Fprintf(r.progress, "the tests of %s fail with nothing broken: they are not used\n", pkg)
	return clean{}
}

// blocksOf reads a coverage profile.
func blocksOf(profile string) (map[string][]cover.ProfileBlock, error) {
	all, err := cover.ParseProfiles(profile)
	blocks := map[string][]cover.ProfileBlock{}
	for _, p := range all {
		blocks[p.FileName] = p.Blocks
	}
	return blocks, err
}

// test builds the tests of a package and runs them. Tests that do not compile, that take longer
// than the limit or more memory than they may have do not pass. If profile names a file, it gets
// the coverage of the packages to break.
func (r *runner) test(ctx context.Context, c changed, pkg string, limit time.Duration, profile string) (took time.Duration, passed bool, err error) {
	program := filepath.Join(c.folder, "tests")
	defer os.Remove(program)
	build := []string{"go", "test", "-c", "-vet=off", "-ldflags=-s", "-o", program}
	run := []string{program, "-test.short", "-test.failfast", "-test.timeout=" + limit.String()}
	if profile != "" {
		build = append(build, "-coverpkg="+strings.Join(r.toBreak, ","))
		run = append(run, "-test.coverprofile="+profile)
	}
	within, stop := context.WithTimeout(ctx, building)
	err = r.command(within, c, r.dir, append(build, pkg)...).Run()
	stop()
	if ctx.Err() != nil || err != nil {
		return 0, false, ctx.Err()
	}
	// The shell is the first process of the namespace: it waits for orphans, and a signal that a
	// test sends to itself has its usual effect.
	words := slices.Concat(r.wall, []string{"sh", "-c", `ulimit -d "$1" || exit; shift; "$@"; exit $?`, "sh", strconv.Itoa(r.memory << 10)}, run)
	within, stop = context.WithTimeout(ctx, limit+r.slack)
	defer stop()
	command := r.command(within, c, r.packages[pkg].Dir, words...)
	begin := time.Now()
	err = command.Run()
	if command.Process != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // What is left without a namespace.
	}
	return time.Since(begin), err == nil, ctx.Err()
}

// judge runs tests with the place broken until one fails.
func (r *runner) judge(ctx context.Context, p place) (result, error) {
	c, err := r.change(&p)
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(c.folder)
	for _, t := range r.tests(p.pkg) {
		if t.nearness == above && !r.above {
			break
		}
		usual := r.clean(ctx, t.pkg)
		if usual.took == 0 || t.nearness != itself && !usual.reaches(p) {
			continue
		}
		_, passed, err := r.test(ctx, c, t.pkg, 3*usual.took+r.slack, "")
		if err != nil {
			return result{}, err
		}
		if !passed {
			return result{p, t.nearness, r.folder(t.pkg)}, nil
		}
	}
	return result{place: p, nearness: nothing}, ctx.Err()
}
