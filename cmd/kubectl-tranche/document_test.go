package main

import (
	"encoding/json"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocument(t *testing.T) {
	const head = `{"apiVersion":"cli.tranche.dev/v1beta1","kind":"Thing"`
	for name, tt := range map[string]struct {
		content any
		want    string
	}{
		"an object": {map[string]string{"a": "<b>"}, head + `,"a":"<b>"}`},
		"no fields": {struct{}{}, head + `}`},
		"a list":    {[]int{1, 2}, head + `,"items":[1,2]}`},
		"no items":  {[]int(nil), head + `,"items":[]}`},
	} {
		document, err := documentOf("Thing", tt.content)
		require.NoError(t, err, name)
		assert.Equal(t, tt.want, string(document), name)
		assert.True(t, json.Valid(document), name)
	}
	_, err := documentOf("Thing", make(chan int))
	require.ErrorContains(t, err, "write Thing as JSON: ")
}

// TestOutputOfEachCommand: each command has JSON and YAML, except those that only change something,
// print manifests, or serve a page.
func TestOutputOfEachCommand(t *testing.T) {
	without := map[string]bool{
		"set-profile": true, "pause": true, "resume": true, "approve": true, "undo": true, // a line says what was done
		"convert": true, // manifests in YAML, with comments
		"ui":      true, "rollout": true, "completion": true, "help": true,
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			if below.Runnable() && !below.Hidden {
				output := below.Flags().Lookup("output")
				require.Equal(t, without[below.Name()], output == nil, below.CommandPath())
				if output != nil {
					assert.Regexp(t, `json (or )?yaml|json, yaml|json or yaml|yaml or json`, output.Usage, below.CommandPath())
				}
			}
			walk(below)
		}
	}
	walk(newCommand(nil))
}
