IFS= read -r -d '' TERRET_COMMAND; exec </dev/null; eval "unset -v TERRET_COMMAND; $TERRET_COMMAND"
