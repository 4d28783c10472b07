package notices

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	mitText = "Permission is hereby granted, free of charge, to any person obtaining a copy\n of this software and associated documentation files (the \"Software\")"
	bsdText = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
		err        string
	}{
		{"Apache", "   Apache License\n  Version 2.0, January 2004", []string{"Apache-2.0"}, ""},
		{"MIT", mitText, []string{"MIT"}, ""},
		{"two", mitText + "\n" + bsdText, []string{"BSD-2-Clause", "MIT"}, ""},
		{"three clauses", bsdText + " neither the name of Google", []string{"BSD-3-Clause"}, ""},
		{"MPL names GPL", "Mozilla Public License Version 2.0 … \"Secondary License\" means the GNU General Public License", []string{"MPL-2.0"}, ""},
		{"GPL", "GNU GENERAL PUBLIC LICENSE Version 2", nil, "its licence GPL does not fit Apache-2.0"},
		{"LGPL", "GNU Lesser\nGeneral Public License", nil, "its licence LGPL does not fit"},
		{"MIT or GPL", mitText + " GNU General Public License", nil, "its licence GPL does not fit"},
		{"Commons Clause", "\"Commons Clause\" License Condition v1.0 … Apache License Version 2.0", nil, "Commons Clause does not fit"},
		{"JSON", mitText + "The Software shall be used for Good, not Evil.", nil, "its licence JSON does not fit"},
		{"unknown", "All rights reserved.", nil, "no known licence"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := classify(tt.text)
			assert.Equal(t, tt.want, got)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// module writes a main module that imports a package of another one, which has files.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod":                   "module example.com/main\n\ngo 1.26\n\nrequire example.com/used v1.0.0\n\nreplace example.com/used => ./used\n",
		"main.go":                  "package main\n\nimport _ \"example.com/used/inner/part\"\n\nfunc main() {}\n",
		"used/go.mod":              "module example.com/used\n\ngo 1.26\n",
		"used/inner/part/part.go":  "package part\n",
		"used/other/other.go":      "package other\n",
		"used/other/LICENSE":       "GNU General Public License",
		"used/inner/license.go":    "package inner\n",
		"used/inner/part/NOTICE":   "Made by A.",
		"used/inner/COPYING":       bsdText,
		"used/LICENSE":             mitText,
		"used/licensing/README.md": "x",
	}
	for name, content := range files {
		if all[name] = content; content == "" {
			delete(all, name)
		}
	}
	for name, content := range all {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return dir
}

func TestOfBuild(t *testing.T) {
	t.Setenv("GOFLAGS", "")
	build := Build{Package: "example.com/main", System: "linux", Architecture: "amd64"}
	modules, err := OfBuild(t.Context(), module(t, nil), build)
	require.NoError(t, err)
	require.Len(t, modules, 2)
	assert.Equal(t, Module{
		Path: "example.com/used", Version: "v1.0.0", Licences: []string{"BSD-2-Clause", "MIT"},
		Files: []File{{"LICENSE", mitText}, {"inner/COPYING", bsdText}, {"inner/part/NOTICE", "Made by A."}},
	}, modules[0], "what is not linked is left out")
	assert.Equal(t, StandardLibrary, modules[1].Path)
	assert.Equal(t, []string{"BSD-3-Clause"}, modules[1].Licences)

	var first, second bytes.Buffer
	require.NoError(t, Write(&first, modules))
	require.NoError(t, Write(&second, modules))
	assert.Equal(t, first.String(), second.String())
	assert.Contains(t, first.String(), "example.com/used v1.0.0: BSD-2-Clause, MIT\n")
	assert.Equal(t, 1, strings.Count(first.String(), "Made by A."))

	_, err = OfBuild(t.Context(), module(t, map[string]string{"used/inner/part/LICENSE": "GNU Affero General Public License"}), build)
	require.ErrorContains(t, err, "module example.com/used v1.0.0: file inner/part/LICENSE: its licence AGPL does not fit Apache-2.0")
	_, err = OfBuild(t.Context(), module(t, map[string]string{"used/LICENSE": "", "used/inner/COPYING": ""}), build)
	require.ErrorContains(t, err, "module example.com/used v1.0.0: it has no file with a licence")
}
