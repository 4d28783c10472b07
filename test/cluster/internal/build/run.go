package build

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// goCommand runs the go command free of what the caller's environment says
// about other builds, so that the same source gives the same program: without
// a C compiler, without paths of this machine. A tenth of the compiler's time goes to collecting
// garbage unless it may take more memory.
func goCommand(ctx context.Context, dir string, env []string, args ...string) error {
	env = append([]string{"CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off", "GOOS=", "GOARCH=", "GOFIPS140=off", "GOGC=400"}, env...)
	return run(ctx, dir, env, "go", args...)
}

// run runs a command and, if it fails, returns the end of what it said.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("the program %q is needed and not to be found in PATH", name)
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, lastLines(output.String(), 20))
	}
	return nil
}

// output is what a command writes to its standard output, without spaces around it.
func output(ctx context.Context, name string, args ...string) (string, error) {
	written, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(written)), nil
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
