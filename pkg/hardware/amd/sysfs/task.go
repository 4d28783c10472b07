package sysfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tranche-dev/tranche/pkg/hardware/gate"
)

// Task is one holder of a gate. All calls to files are made through it: a write
// to sysfs can hang in the kernel, and nothing can cancel it.
type Task struct {
	*gate.Task
	files Files
}

// NewTask is the task of who holds a gate.
func NewTask(t *gate.Task, files Files) *Task { return &Task{Task: t, files: files} }

// Through runs f alone at the gate and returns when f does or ctx ends,
// whichever is first.
func Through[T any](ctx context.Context, g *gate.Gate, files Files, f func(*Task) (T, error)) (T, error) {
	return gate.Through(ctx, g, func(t *gate.Task) (T, error) { return f(NewTask(t, files)) })
}

func call[T any](t *Task, op, doing, name string, f func() (T, error)) (T, error) {
	return gate.Ask(t.Task, doing+" "+name, func() (T, error) {
		value, err := f()
		if err != nil {
			return value, &Error{Subject: t.Subject(), Op: op, Name: name, Err: bare(err)}
		}
		return value, nil
	})
}

// Read returns the content without the white space around it.
func (t *Task) Read(name string) (string, error) {
	data, err := call(t, "read", "reading", name, func() ([]byte, error) { return t.files.ReadFile(name) })
	return strings.TrimSpace(string(data)), err
}

// ReadOptional reads a file that not every driver has; it is empty when it is not
// there.
func (t *Task) ReadOptional(name string) (string, error) {
	text, err := t.Read(name)
	if Absent(err) {
		return "", nil
	}
	return text, err
}

// Write writes a text in one call.
func (t *Task) Write(name, text string) error {
	_, err := call(t, "write "+text+" to", "writing "+text+" to", name, func() (struct{}, error) {
		return struct{}{}, t.files.WriteFile(name, []byte(text))
	})
	return err
}

// List returns the names in a folder, sorted.
func (t *Task) List(name string) ([]string, error) {
	return call(t, "list", "listing", name, func() ([]string, error) { return t.files.ReadDir(name) })
}

// Stat tells about a file without reading it.
func (t *Task) Stat(name string) (Info, error) {
	return call(t, "look at", "looking at", name, func() (Info, error) { return t.files.Stat(name) })
}

// RealPath is the path without symbolic links.
func (t *Task) RealPath(name string) (string, error) {
	return call(t, "follow", "following", name, func() (string, error) { return t.files.EvalSymlinks(name) })
}

// Undoing is a task at the same gate that outlives the caller's time.
func (t *Task) Undoing() *Task { return NewTask(t.Task.Undoing(), t.files) }

// Error is a call to a file that did not succeed. errors.Is finds the
// kernel's error number in it.
type Error struct {
	// Subject is what was asked: "GPU 0000:c1:00.0" or "amdgpu".
	Subject string
	// Op is what was done: "read", "write CPX to".
	Op, Name string
	Err      error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s %s: %v", e.Subject, e.Op, e.Name, e.Err)
}

// Unwrap gives the kernel's error.
func (e *Error) Unwrap() error { return e.Err }

// bare is an error without the path that the caller is going to name.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Absent reports whether an error says that a file does not exist.
func Absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
