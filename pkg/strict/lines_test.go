package strict

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProblemsHaveLines(t *testing.T) {
	const document = `spec:
  names:
    a.b: x
    c: |
      text
  # a comment
  rules:
  - {}
  -
    sharing: &s
      replicas: 2
      timeSlice: Short
  - sharing: *s
`
	text := Text{File: "f", Data: []byte(document), Before: 10}
	var into sample
	problems, err := text.Decode(&into)
	require.NoError(t, err)
	for path, want := range map[string]string{
		`spec.names.a.b`:                   "f: spec.names.a.b: wrong (line 13)",
		"spec.names.c":                     "f: spec.names.c: wrong (line 14)",
		"spec.names.none":                  "f: spec.names.none: wrong (line 12)",
		"spec.rules[1].sharing.timeSlice":  "f: spec.rules[1].sharing.timeSlice: wrong (line 22)",
		"spec.rules[1].sharing.maxClients": "f: spec.rules[1].sharing.maxClients: wrong (line 20)",
		"spec.rules[2].sharing.replicas":   "f: spec.rules[2].sharing.replicas: wrong (line 23)",
		"spec.rules[9]":                    "f: spec.rules[9]: wrong (line 17)",
		"other":                            "f: other: wrong",
		"":                                 "f: wrong",
	} {
		p := problems.New()
		p.Add(path, "wrong")
		require.EqualError(t, p.Err(), want)
	}
	text.Before = -1
	problems, err = text.Decode(&into)
	require.NoError(t, err)
	assert.Empty(t, problems.lines, "the lines are not those of the file")
	problems, err = Text{Data: []byte("{spec: {}}\n")}.Decode(&into)
	require.NoError(t, err)
	assert.Empty(t, problems.lines, "a single line is found without a number")
}
