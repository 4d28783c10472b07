package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// dropped are words that pages do not use, and what they use instead.
var dropped = map[string]string{
	`repartition(s|ed|ing)?\b`:                            "profile switch",
	`\blegacy resource`:                                   "extended resource",
	`\bturn(s|ed)? (\w+ ){0,2}into claims`:                "translate (admission policy), convert (kubectl tranche)",
	`\bnot tried\b`:                                       "untested",
	`\bfilling\b`:                                         "packing",
	`\bdoes not tell\b|\bKFD tells\b`:                     "report",
	`\bcounts? more than\b|\blabel counts\b`:              "override, apply",
	`\bprove[sn]? the plan again\b`:                       "revalidate",
	`\bnobody has signed\b`:                               "self-signed",
	`\bthe own\b`:                                         "its own",
	`\bthis page (shows|says)\b|\b(use|read) this page\b`: "say it at once",
	`^\* Compared with the code`:                          "nothing: the mark is a bullet",
	`: (why|which|who|and why)[.]? *(\||$)`:               "a sentence with a verb",
	`\bask(s|ed|ing)? for\b`:                              "request",
	`\bwait(s)? for ever\b`:                               "forever",
}

// Pages use the terms of the glossary. Code, quoted messages and what is generated of the API
// are left out.
func TestDroppedTerms(t *testing.T) {
	inCode := regexp.MustCompile("`[^`]*`")
	for _, page := range pages(t) {
		if strings.HasSuffix(page, "CHANGELOG.md") || strings.HasSuffix(page, "reference/api.md") {
			continue
		}
		block := false
		for line := range strings.Lines(read(t, page)) {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				block = !block
			}
			if block || strings.HasPrefix(line, "> ") {
				continue
			}
			text := inCode.ReplaceAllString(strings.TrimSpace(line), "``")
			for term, instead := range dropped {
				assert.NotRegexp(t, "(?i)"+term, text, "%s: write %s", page, instead)
			}
		}
	}
}

// A container has no log before it starts.
func TestLogsAreWaitedFor(t *testing.T) {
	waits := regexp.MustCompile(`kubectl .*(wait |rollout status )`)
	logs := regexp.MustCompile(`^ *kubectl (-n (\S+) )?logs `)
	for _, page := range pages(t) {
		block, waited := false, false
		for line := range strings.Lines(read(t, page)) {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				block, waited = !block, false
			}
			waited = waited || waits.MatchString(line)
			// Tranche's own programs run already.
			if found := logs.FindStringSubmatch(line); block && found != nil && found[2] != "tranche-system" {
				assert.True(t, waited, "%s: wait before %s", page, line)
			}
		}
	}
}
