package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/usage"
)

func TestDocument(t *testing.T) {
	for _, tt := range []struct {
		content any
		want    string
	}{
		{versions{Unread: []text.Unread{{Message: "<b>"}}}, `{"apiVersion":"cli.tranche.dev/v1beta1","kind":"Version","client":{"version":"","platform":""},"unread":[{"message":"<b>"}]}`},
		{[]cluster.Profile{{Name: "a"}}, `{"apiVersion":"cli.tranche.dev/v1beta1","kind":"ProfileList","items":[{"name":"a"}]}`},
		{[]usage.Node(nil), `{"apiVersion":"cli.tranche.dev/v1beta1","kind":"NodeUsageList","items":[]}`},
		{&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}, `{"kind":"Status","apiVersion":"v1","metadata":{}}`},
	} {
		document, err := documentOf(tt.content)
		require.NoError(t, err)
		assert.Equal(t, tt.want, string(document))
	}
	_, err := documentOf(struct{}{})
	require.EqualError(t, err, "struct {} has no kind")
	_, err = documentOf(make(chan int))
	require.ErrorContains(t, err, "write chan int as JSON: ")
}

// TestOutputOfEachCommand: each command has JSON and YAML, except those that only change something,
// print manifests, or serve a page.
func TestOutputOfEachCommand(t *testing.T) {
	without := map[string]bool{
		"set-profile": true, "pause": true, "resume": true, "approve": true, "undo": true, // a line says what was done
		"convert": true, // manifests in YAML, with comments
		"ui":      true, "rollout": true, "completion": true, "help": true, "options": true, "report": true,
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
