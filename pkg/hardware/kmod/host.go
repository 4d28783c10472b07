package kmod

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// endPatience is how long a program may take to end after a signal. A program that takes longer
// hangs in the kernel, where no signal reaches it.
const endPatience = 2 * time.Second

// hungError is a program that does not end.
type hungError struct {
	command string
	// ends is closed when the program ends.
	ends  <-chan struct{}
	cause error
}

func (e *hungError) Error() string {
	return fmt.Sprintf("%q hangs in the kernel and cannot be ended (%v); look in dmesg; usually only a reboot of the node helps", e.command, e.cause)
}

// Unwrap returns why the context ended.
func (e *hungError) Unwrap() error { return e.cause }

// host runs a program of the host. If the program does not end after ctx, host returns a
// *hungError without waiting for it.
func (m *Module) host(ctx context.Context, program string, args ...string) (string, error) {
	// out and err are read only after ends is closed.
	var out []byte
	var err error
	ends := make(chan struct{})
	go func() {
		defer close(ends)
		out, err = m.Run(ctx, program, args...)
	}()
	command := program + " " + strings.Join(args, " ")
	select {
	case <-ends:
	case <-ctx.Done():
		timer := time.NewTimer(endPatience)
		defer timer.Stop()
		select {
		case <-ends:
		case <-timer.C:
			return "", &hungError{command: command, ends: ends, cause: ctx.Err()}
		}
	}
	said := strings.Join(strings.Fields(string(out)), " ")
	switch {
	case err == nil:
		return said, nil
	case ctx.Err() != nil:
		return said, fmt.Errorf("%q was ended because it took too long: %w", command, ctx.Err())
	case said == "":
		return said, fmt.Errorf("%q: %w", command, err)
	}
	return said, fmt.Errorf("%q: %w: %s", command, err, said)
}
