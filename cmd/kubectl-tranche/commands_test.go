package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/golden"
)

// TestCommands: scripts rely on commands and flags. api/public-names.txt has them, too.
func TestCommands(t *testing.T) {
	var b strings.Builder
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		fmt.Fprintln(&b, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name += ", -" + f.Shorthand
			}
			kind := f.Value.Type()
			if f.Name == "output" {
				kind = strings.TrimPrefix(f.Usage, "output format: ")
			}
			line := fmt.Sprintf("%s: %s %s", cmd.CommandPath(), name, kind)
			if f.DefValue != "" && f.DefValue != "[]" {
				line += " = " + f.DefValue
			}
			fmt.Fprintln(&b, line)
		})
		for _, below := range cmd.Commands() {
			if !below.Hidden && below.Name() != "help" {
				walk(below)
			}
		}
	}
	walk(newCommand(nil))
	golden.Equal(t, "testdata/commands.txt", b.String())
}

// What pages tell people to type has the commands, flags and arguments that there are. Code in a sentence may
// be only the name of a command.
func TestCommandsOfPages(t *testing.T) {
	code := regexp.MustCompile("(?m)^kubectl tranche(.*)$|`kubectl tranche([^`]*)`")
	ends := regexp.MustCompile(` #.*| *[|>&\\].*|[]\[]|\.\.\.`)
	seen := 0
	require.NoError(t, filepath.WalkDir("../..", func(page string, entry fs.DirEntry, err error) error {
		if name := entry.Name(); err == nil && entry.IsDir() && strings.HasPrefix(name, ".") && name != ".." && name != ".github" {
			return fs.SkipDir // of clusters that run, too
		}
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		text, err := os.ReadFile(page)
		for _, found := range code.FindAllStringSubmatch(string(text), -1) {
			seen++
			root := newCommand(nil)
			cmd, args, err := root.Find(strings.Fields(ends.ReplaceAllString(found[1]+found[2], "")))
			if !assert.NoError(t, err, "%s: %s", page, found[0]) || !assert.NoError(t, cmd.ParseFlags(args), "%s: %s", page, found[0]) {
				continue
			}
			if found[2] == "" || len(args) > 0 {
				assert.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: %s", page, found[0])
			}
		}
		return err
	}))
	assert.Greater(t, seen, 50)
}
