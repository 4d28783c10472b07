package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes besides 0. exitCodes says what they mean.
const (
	exitError      = 1
	exitNegative   = 2
	exitUnfinished = 3
)

// exitCodes are the exit codes of all commands. The help and the documentation list them.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{0, "success; after waiting, the profile is applied, or the rollout is complete"},
	{exitError, "error: a wrong argument, a missing object or permission, no answer"},
	{exitNegative, "no: the switch failed or cannot start; the plan has stopped, was undone or is invalid; " +
		"something cannot be converted; Tranche cannot be uninstalled now"},
	{exitUnfinished, "not yet: --timeout or Ctrl-C ended the wait; a switch or rollout continues, uninstall has to be repeated"},
}

// coded is an error with which the program ends with a code of its own.
type coded struct {
	error
	code int
}

// Unwrap returns the error without the code.
func (c coded) Unwrap() error { return c.error }

// negative marks an error that answers no. It keeps nil.
func negative(err error) error {
	if err == nil {
		return nil
	}
	return coded{err, exitNegative}
}

func exitCode(err error) int {
	var c coded
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c):
		return c.code
	}
	return exitError
}

// newExitCodesTopic returns what `help exit-codes` prints.
func newExitCodesTopic(*options) *cobra.Command {
	var text strings.Builder
	text.WriteString("The exit codes of all commands:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&text, "%d\n%s\n", c.code, indented([]string{c.meaning}))
	}
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes of all commands", Long: strings.TrimSpace(text.String())}
}
