#!/usr/bin/env bash
# Prints the home of a Java >= 17, for JAVA_HOME. Looks at JAVA_HOME, the PATH and the usual
# places; installs one by apt when root; otherwise ends with one line on what to install.
set -euo pipefail

readonly JAVA_MAJOR_MIN=17
# The second stands in where a distribution no longer has the first.
readonly PACKAGE=openjdk-17-jre-headless PACKAGE_NEWER=openjdk-21-jre-headless

# Prints the home to which the program $1 belongs when it is a Java that is new enough.
home_if_good() {
    local java=$1 properties major home
    [ -x "$java" ] || return 1
    properties=$("$java" -XshowSettings:properties -version 2>&1) || return 1
    major=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$properties")
    home=$(sed -n 's/^ *java\.home = //p' <<<"$properties")
    # Java 8 calls itself 1.8: the part before the point is what counts, and 1 is too old.
    [ "${major%%.*}" -ge "$JAVA_MAJOR_MIN" ] 2>/dev/null && echo "$home"
}

find_java() {
    local java
    if [ -n "${JAVA_HOME:-}" ]; then
        home_if_good "$JAVA_HOME/bin/java" && return
    fi
    if java=$(command -v java); then
        home_if_good "$java" && return
    fi
    for java in /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        home_if_good "$java" && return
    done
    return 1
}

install_java() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "No Java >= $JAVA_MAJOR_MIN found: installing one by apt" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || return 1
    local package
    for package in "$PACKAGE" "$PACKAGE_NEWER"; do
        apt-get install -y -qq --no-install-recommends "$package" >&2 && return
    done
    return 1
}

find_java || { install_java && find_java; } || {
    echo "Java >= $JAVA_MAJOR_MIN is needed for Spark: install $PACKAGE (or another JRE) or set JAVA_HOME" >&2
    exit 1
}
