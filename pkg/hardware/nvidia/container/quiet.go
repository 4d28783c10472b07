package container

import (
	"fmt"

	"github.com/go-logr/logr"
)

// quietLogger logs the messages of nvcdi at a high level: it warns of some thirty optional
// graphics files on each call.
type quietLogger struct{ to logr.Logger }

func (l quietLogger) say(level, format string, args ...any) {
	l.to.V(6).Info("nvcdi", "level", level, "message", fmt.Sprintf(format, args...))
}

func (l quietLogger) Tracef(format string, args ...any)   { l.say("trace", format, args...) }
func (l quietLogger) Debugf(format string, args ...any)   { l.say("debug", format, args...) }
func (l quietLogger) Infof(format string, args ...any)    { l.say("info", format, args...) }
func (l quietLogger) Warningf(format string, args ...any) { l.say("warning", format, args...) }
func (l quietLogger) Errorf(format string, args ...any)   { l.say("error", format, args...) }
