package options

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		nodes   int
		loads   Loads
		refused string
	}{
		"defaults":          {nodes: 300, loads: Loads{0.8, 0.95}},
		"both":              {args: []string{"-nodes", "1", "-load", "0.5,1.25"}, nodes: 1, loads: Loads{0.5, 1.25}},
		"no node":           {args: []string{"-nodes", "0"}, refused: `invalid value "0" for flag -nodes: must be at least 1`},
		"a negative number": {args: []string{"-nodes=-5"}, refused: `invalid value "-5" for flag -nodes: must be at least 1`},
		"no number":         {args: []string{"-nodes", "x"}, refused: `invalid value "x" for flag -nodes: must be an integer`},
		"a huge number":     {args: []string{"-nodes", "99999999999999999999"}, refused: "-nodes: value out of range"},
		"no demand":         {args: []string{"-load", "0"}, refused: `for flag -load: "0" must be a number above 0; 0.95 is 95 % of the fleet`},
		"not a finite one":  {args: []string{"-load", "0.8,Inf"}, refused: `"Inf" must be a number above 0`},
		"not a number":      {args: []string{"-load", "NaN"}, refused: `"NaN" must be a number above 0`},
		"an empty one":      {args: []string{"-load", "0.8,"}, refused: `"" must be a number above 0`},
		"an unknown flag":   {args: []string{"-node", "3"}, refused: "flag provided but not defined: -node"},
		"an argument":       {args: []string{"-nodes", "3", "profile"}, refused: `unexpected argument "profile"`},
	} {
		t.Run(name, func(t *testing.T) {
			flags := flag.NewFlagSet("", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			var nodes int
			loads := Loads{0.8, 0.95}
			Number(flags, &nodes, "nodes", 300, 1, "")
			flags.Var(&loads, "load", "")
			assert.Equal(t, "0.80,0.95", flags.Lookup("load").DefValue)
			err := Parse(flags, test.args)
			if test.refused != "" {
				require.ErrorContains(t, err, test.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.nodes, nodes)
			assert.Equal(t, test.loads, loads)
		})
	}
}

// The help has the defaults.
func TestHelp(t *testing.T) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	var help strings.Builder
	flags.SetOutput(&help)
	var nodes, rounds int
	Number(flags, &nodes, "nodes", 300, 1, "how many nodes")
	Number(flags, &rounds, "rounds", 0, 0, "how many rounds")
	flags.PrintDefaults()
	assert.Contains(t, help.String(), "how many nodes (default 300)")
	assert.NotContains(t, help.String(), "panic")
}

func TestChosen(t *testing.T) {
	name := func(s string) string { return s }
	all := []string{"a", "b", "c"}
	for text, want := range map[string][]string{"": all, "b": {"b"}, "c,a": {"c", "a"}} {
		some, err := Chosen("-policy", text, all, name)
		require.NoError(t, err)
		assert.Equal(t, want, some, text)
	}
	_, err := Chosen("-policy", "a,d", all, name)
	require.EqualError(t, err, `-policy: there is no "d"; there are a, b, c`)
}
